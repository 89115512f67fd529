# SPDX-License-Identifier: Apache-2.0
"""Which skips are allowed, and the pytest plugin that prints them and fails every other one; no tests here.

BARACUDA_TEST_REQUIRE (for example ``cuda,torch``) takes reasons off the allowed list, for machines
where a skip would mean that something was not tested.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest

# What BARACUDA_TEST_REQUIRE calls it -> the exact reason.
ALLOWED_REASONS = {
    "cuda": "no CUDA",
    "gpus": "fewer than two GPUs",
    "torch": "no torch",
    "torchvision": "no usable torchvision",
    "rustc": "no rustc",
}


def required() -> set[str]:
    return {name.strip() for name in os.environ.get("BARACUDA_TEST_REQUIRE", "").split(",") if name.strip()}


@cache
def backends() -> tuple[str, ...]:
    """The backends that a test of both is made for.

    Where CUDA may be missing and is, the CPU alone: to make and skip the other half one by one takes minutes.
    """
    import pybaracuda

    return ("cpu", "cuda") if "cuda" in required() or pybaracuda.backend_available("cuda") else ("cpu",)


def is_allowed(reason: str) -> bool:
    """Whether a test may be skipped for this reason in this session."""
    return any(reason == allowed for name, allowed in ALLOWED_REASONS.items() if name not in required())


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason as the test gave it, without pytest's prefix."""
    longrepr = report.longrepr
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


class SkipPolicy:
    """Turns every skip with another reason into a failure where it happens, so that no worker can lose it."""

    def __init__(self) -> None:
        self.allowed: Counter[str] = Counter()

    def _judge(self, report: Any) -> None:
        if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
            reason = reason_of(report)
            if not is_allowed(reason):
                report.outcome = "failed"
                report.longrepr = f"a skip for a reason that is not allowed: {reason}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._judge(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self._judge(report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.allowed[reason_of(report)] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.allowed[reason_of(report)] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("allowed skips")
        lines = [] if "cuda" in backends() else ["no CUDA: tests of both backends were made for the CPU alone"]
        lines += [f"{reason}: {count} skipped" for reason, count in sorted(self.allowed.items())]
        for line in lines or ["nothing was skipped"]:
            terminalreporter.write_line(line)
