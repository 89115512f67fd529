# SPDX-License-Identifier: Apache-2.0
"""Which cases a run takes where time is short: as many as were asked for, others in every run, and no test without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import share

from pybaracuda._check.runs import cpu_configurations

MANY = [f"test_a.py::test_many[{number}]" for number in range(100)]
FEW = [f"test_a.py::test_few[{number}]" for number in range(share.FEW)]
SOME = [f"test_b.py::test_many[{number}]" for number in range(11)]
NAMES = [*MANY, *FEW, "test_a.py::test_one", *SOME]


@pytest.fixture(autouse=True)
def without_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (share.VARIABLE, share.BITS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


def count(taken: set[int], names: list[str]) -> int:
    return sum(NAMES[at] in names for at in taken)


def test_one_in_so_many_and_every_test() -> None:
    taken = share.chosen(NAMES, 3, "5")
    assert count(taken, MANY) == 34
    assert count(taken, FEW) == len(FEW)
    assert count(taken, SOME) == share.FEW
    assert NAMES.index("test_a.py::test_one") in taken
    assert share.chosen(NAMES, 1, "5") == set(range(len(NAMES)))


def test_others_in_every_run_and_the_same_in_every_process() -> None:
    assert share.chosen(NAMES, 3, "5") == share.chosen(NAMES, 3, "5")
    assert share.chosen(NAMES, 3, "5") != share.chosen(NAMES, 3, "6")
    seen: set[int] = set()
    for seed in range(40):
        seen |= share.chosen(NAMES, 3, str(seed))
    # Missed with a chance of (2 / 3)^40 each.
    assert seen == set(range(len(NAMES)))


@pytest.mark.parametrize("given", ["0", "-1", "half", ""])
def test_what_is_no_share_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(share.VARIABLE, given)
    with pytest.raises(pytest.UsageError, match="wanted a whole number"):
        share.share()


def test_a_part_of_the_committed_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share.part_of_bits(11) == (0, 1)
    monkeypatch.setenv(share.BITS_VARIABLE, "3")
    assert [share.part_of_bits(seed) for seed in (9, 10, 11)] == [(0, 3), (1, 3), (2, 3)]


def collected(file: str, one_in: int) -> str:
    """What pytest says of a file of which it takes one case in so many."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", f"tests/{file}"]
    environ = {**os.environ, share.VARIABLE: str(one_in)}
    root = Path(__file__).parents[1]
    return subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=True).stdout


def test_every_configuration_of_the_library_is_run() -> None:
    said = collected("test_bits.py", 1000)
    for configuration in cpu_configurations():
        assert f"committed_bits[{configuration.name}]" in said


def test_pytest_counts_what_was_left_out() -> None:
    found = {}
    for one_in in (1, 4):
        said = collected("test_max_unpool.py", one_in)
        found[one_in] = sum("::test_" in line for line in said.splitlines())
        assert ("deselected" in said) == (one_in == 4)
    assert 0 < found[4] < found[1]
