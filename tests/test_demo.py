# SPDX-License-Identifier: Apache-2.0
"""The demo at a small size: it passes, it draws, and it fails when an operator is wrong or its bits change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pybaracuda
from examples.photo import main as demo
from examples.photo import (
    measure,
    memory,
    padding,
    photo,
    region_pooling,
    registration,
    roi_attention,
    scale_fit,
)
from pybaracuda import _abi
from verify.progress import Progress

SIZE = 152
# What the demo is about; an operator that comes later needs no place in it.
FAMILIES = ("roi_align", "grid_sample", "affine_grid", "pad", "dequantize")
LATER = ("grid_sample_2d_ex", "affine_grid_2d_ex", "roi_align_levels", "roi_align_boxes", "affine_grid_3d")
SHOWN = [
    *(
        name
        for name, operator in _abi.OPERATORS.items()
        if operator.family in FAMILIES and name.removesuffix("_backward") not in LATER
    ),
    "unsorted_segment_max",
    "unsorted_segment_max_backward",
]


@pytest.fixture(autouse=True)
def quick_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_BATCH_SECONDS", 0.0002)


def run_demo(folder: Path, *options: str) -> int:
    return demo.main(["--size", str(SIZE), "--backend", "cpu", "--output", str(folder / "demo.png"), *options])


@pytest.fixture(scope="module")
def cases() -> dict[str, measure.Case]:
    """Every shown operator's float32 case, from the jobs' own results."""
    host, image = memory.host(), photo.load(SIZE)
    registered = registration.run(image, host, lambda: None)
    found = (
        *registration.cases(registered, image, "f32"),
        *roi_attention.cases(roi_attention.run(image, host), image, "f32"),
        *region_pooling.cases(region_pooling.run(image, host), "f32"),
        *scale_fit.cases(scale_fit.run(image, host, lambda: None), "f32"),
        *padding.cases(padding.run(image, host), image, "f32"),
    )
    return {case.operator: case for case in found}


def with_outputs_changed(case: measure.Case, change: Callable[[Any], None]) -> measure.Case:
    """The same case with a fault planted after every call."""

    def call(*given: Any, out: Any) -> None:
        case.call(*given, out=out)
        change(out[0] if isinstance(out, tuple) else out)

    return replace(case, call=call)


def test_demo_passes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(tmp_path) == 0
    output = capsys.readouterr().out
    lines = output.splitlines()
    for operator in SHOWN:
        # One line each, with every dtype that the table has.
        (line,) = (line for line in lines if line.startswith(f"{operator} "))
        assert " f32 f64" in line
        assert " yes " in line
    assert "FAIL" not in output
    assert "checks passed" in lines[-1]
    assert str(tmp_path / "demo.txt") in lines[-1]
    picture = (tmp_path / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 100_000


def test_whole_table_is_in_a_file_and_printed_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_demo(tmp_path, "--all") == 0
    output = capsys.readouterr().out
    table = (tmp_path / "demo.txt").read_text(encoding="utf-8")
    assert set(table.splitlines()) <= set(output.splitlines())
    blocks = re.findall(r"^(\w+)  +f32 .*\n((?: +\w.*\n)*)", table, re.MULTILINE)
    rows = {operator: ["f32", *(line.split()[0] for line in others.splitlines())] for operator, others in blocks}
    assert sorted(rows) == sorted(SHOWN)
    for operator, dtypes in rows.items():
        known = {variant.types.get("T") or variant.types["C"] for variant in _abi.OPERATORS[operator].variants.values()}
        assert set(dtypes) == known & {"f32", "f64", "f16", "bf16"}, operator
    assert "\nok    registration: the loss falls" in table
    assert "of copy: the time of a" in table


def test_picture_has_the_width_and_format_that_are_asked_for(tmp_path: Path) -> None:
    assert run_demo(tmp_path, "--quiet", "--width", "800", "--output", str(tmp_path / "small.jpg")) == 0
    with Image.open(tmp_path / "small.jpg") as picture:
        assert picture.format == "JPEG"
        assert picture.width == 800
    assert (tmp_path / "small.txt").is_file()


def test_quiet_demo_prints_its_last_line_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(tmp_path, "--quiet") == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert captured.err == ""


def test_progress_ends_at_its_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"total": 0, "done": 0}

    class Counting(Progress):
        def __init__(self, total: int, quiet: bool) -> None:
            super().__init__(total, quiet)
            self.expect(total)

        def expect(self, steps: int) -> None:
            counts["total"] += steps

        def step(self) -> None:
            counts["done"] += 1

    monkeypatch.setattr(demo, "Progress", Counting)
    assert run_demo(tmp_path, "--quiet") == 0
    assert counts["done"] == counts["total"] > 80


def test_demo_fails_on_a_wrong_gradient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = pybaracuda.affine_grid_backward

    def wrong(*given: Any, out: Any = None, **options: Any) -> Any:
        # As if one sample had been forgotten: the descent still works, the definition does not agree.
        gradient, *others = given
        shorter = gradient.copy()
        shorter.reshape(-1)[np.abs(gradient).argmax()] = 0
        return right(shorter, *others, out=out, **options)

    monkeypatch.setattr(pybaracuda, "affine_grid_backward", wrong)
    assert run_demo(tmp_path, "--quiet") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED: 2 of ")
    assert sum(line.endswith("<- FAIL") for line in lines) == 2  # f32 and f64


def test_demo_fails_when_nothing_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pybaracuda, "grid_sample_backward", lambda *given, out=None: out or _zeros_like(*given[1:]))
    assert run_demo(tmp_path, "--quiet") == 1
    assert "FAIL  registration: the loss falls: 1 times" in capsys.readouterr().out


def _zeros_like(*arrays: Any) -> tuple[Any, ...]:
    return tuple(np.zeros_like(array) for array in arrays)


@pytest.mark.parametrize("operator", SHOWN)
def test_right_operator_is_let_through(cases: dict[str, measure.Case], operator: str) -> None:
    assert measure.verify(cases[operator], memory.host()).kept


@pytest.mark.parametrize("operator", SHOWN)
def test_wrong_element_is_seen(cases: dict[str, measure.Case], operator: str) -> None:
    def change(output: Any) -> None:
        flat = output.reshape(-1)
        middle = flat.size // 2
        flat[middle] += np.float32(0.01) * max(abs(flat[middle]), np.float32(0.1))

    verdict = measure.verify(with_outputs_changed(cases[operator], change), memory.host())
    assert verdict.of_bound > 1
    assert verdict.same_bits
    assert not verdict.kept


@pytest.mark.parametrize("operator", SHOWN)
def test_forgotten_element_is_seen(cases: dict[str, measure.Case], operator: str) -> None:
    verdict = measure.verify(replace(cases[operator], call=lambda *given, out: None), memory.host())
    assert not verdict.kept


def test_changing_bits_are_seen(cases: dict[str, measure.Case]) -> None:
    calls = iter(range(1000))

    def change(output: Any) -> None:
        bits = output.reshape(-1).view(np.uint32)
        bits[-1] ^= next(calls) % 2  # far below the bound

    verdict = measure.verify(with_outputs_changed(cases["roi_align"], change), memory.host())
    assert verdict.of_bound <= 1
    assert not verdict.same_bits
    assert not verdict.kept


def test_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "_NEEDED", ("matplotlib", "no_such_package"))
    assert demo.main([]) == 2
    assert capsys.readouterr().err == "The demo needs no_such_package: pip install no_such_package\n"


def test_absent_backend_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pybaracuda, "backend_problem", lambda backend: f"no {backend} device")
    assert demo.main(["--backend", "cuda"]) == 2
    assert capsys.readouterr().err == "The demo cannot run: no cuda device\n"
