# SPDX-License-Identifier: Apache-2.0
"""The small training programs in the benchmark through PyTorch: how they are run, and what follows from it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

from benchmarks.pytorch import programs, report, results
from benchmarks.pytorch.results import Program, Result

repeatable = importlib.import_module("examples.repeatable_training.run")


def example() -> Result:
    origin = {"date": "2026-01-02 03:04 UTC", "device": "A GPU", "backend": "cuda", "driver": "1", "not_run": []}
    origin |= {"versions": {"torch": "2.9"}, "repeat": 3, "flush": "1 MiB written", "sections": ["programs"]}
    several = Program(
        "graph_network",
        {"pytorch": [10.0, 12.0], "flag": [40.0], "ours": [5.5, 5.5]},
        {"pytorch": ["a", "b"], "flag": ["c"], "ours": ["d", "d"]},
    )
    refused = Program("speech", {"pytorch": [8.0, 8.0], "ours": [4.0, 4.0]}, {"ours": ["e", "e"]}, {"flag": "raises"})
    return Result(origin, programs=[several, refused])


def test_a_program_is_run_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    def train(name: str, device: str, way: str, steps: int | None) -> object:
        asked.append((name, device, way))
        if way == "flag":
            raise repeatable.RefusedError("speech ended with status 1")
        if way == "pytorch" and len(asked) > 3:
            raise repeatable.FailedError("speech ended with status 1: a reason\nMemoryError")
        return repeatable.Training(f"{way} {len(asked)}", frozenset(), float(len(asked)))

    monkeypatch.setattr(repeatable, "train", train)
    found = programs.run("speech", "cpu", 2)
    assert asked == [("speech", "cpu", way) for way in ("pytorch", "flag", "ours", "pytorch", "ours")]
    assert found.milliseconds == {"pytorch": [1.0], "ours": [3.0, 5.0]}
    assert found.weights == {"pytorch": ["pytorch 1"], "ours": ["ours 3", "ours 5"]}
    assert found.notes == {"flag": "raises", "pytorch": "run 2: MemoryError"}
    assert found.faults == ["pytorch: run 2: MemoryError", "ours: the runs end with different weights"]


def test_only_our_weights_must_repeat() -> None:
    assert example().faults == []
    several, refused = example().programs
    assert [several.repeats(way) for way in ("pytorch", "flag", "ours")] == [False, None, True]
    refused.notes["ours"] = "raises"
    assert refused.faults == ["ours: raises"]


def test_the_table_says_what_was_found() -> None:
    lines = report.programs_table(example()).splitlines()
    assert lines[2:] == [
        "| graph network | 11.0 ≠ | 40.0 | 5.5 | 0.50 x |",
        "| speech | 8.0 | raises | 4.0 | 0.50 x |",
    ]
    assert report.program_line(example().programs[1]) == "speech: ms a step 8.0, with the flag raises, ours 4.0"
    assert "### Small programs" in report.sections(example())


def test_files_keep_programs(tmp_path: Path) -> None:
    result = example()
    result.save(tmp_path / "found.json")
    assert results.load(tmp_path / "found.json") == result
    later = example()
    later.programs = [Program("speech", {"ours": [3.0]})]
    found = results.updated(result, later)
    assert [(each.name, each.step("ours")) for each in found.programs] == [("graph_network", 5.5), ("speech", 3.0)]
