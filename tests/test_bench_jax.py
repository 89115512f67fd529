# SPDX-License-Identifier: Apache-2.0
"""The benchmark of JAX programs on tiny problems: rows compare the same thing, results survive JSON, the page is fresh.

No test looks at how long anything took.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.harness.page import NOTHING, with_part
from benchmarks.xla import main, measure, render, report, results
from benchmarks.xla.results import Result, RowResult, Way
from benchmarks.xla.rows import SIZES, rows_of

ROOT = Path(__file__).resolve().parent.parent
SMALL = {row.name: row for row in rows_of("small")}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measure, "_NUM_REPEATS", 1)
    monkeypatch.setattr(measure, "_KERNEL_SECONDS", 0.0)
    monkeypatch.setattr(measure, "_HOST_CALLS", 2)
    # What the command sets for itself.
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.mark.parametrize("name", SMALL)
def test_ours_and_xlas_way_are_the_same_function(name: str, rng: np.random.Generator) -> None:
    row = SMALL[name]
    found = jax.jit(lambda *x: (row.ours(*x), row.xla(*x)))(*row.arrays(rng))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        # Sums of at most some hundred products in float32, in other orders.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_sizes_have_the_same_rows() -> None:
    names = [[each.name.split(" f32 ")[0] for each in rows_of(size)] for size in SIZES]
    assert names[0] == names[1] == names[2]
    assert len(SMALL) == len(names[0])
    assert "segment_max bw f32 1,000,000 x 64, 100,000 segments" in {row.name for row in rows_of("large")}


def test_command_measures_both_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "found.json"
    main.main(["--cpu", "--size", "small", "--rows", "^(pad_circular|segment_sum fw)", "--output", str(output)])
    found = results.load(output)
    assert [row.name.split()[0] for row in found.rows] == ["segment_sum", "pad_circular"]
    for row in found.rows:
        assert set(row.ways) == {"ours", "xla", "deterministic"}
        assert all(way.us is not None and way.us > 0 and way.same_bits and not way.note for way in row.ways.values())
    assert all(us > 0 for us in (*found.from_python.values(), *found.in_executables.values()))
    assert set(results.JITTED) | {results.BARE, results.EAGER, results.NOT_JITTED} <= set(found.from_python)
    assert set(results.OURS_IN_EXECUTABLES) <= set(found.in_executables)
    printed = capsys.readouterr().out
    assert found.rows[0].name in printed
    assert report.verdict(found) in printed


@pytest.mark.parametrize(
    ("code", "note"), [("raise SystemExit(3)", "its process ended"), ("import time; time.sleep(60)", "longer than 0 s")]
)
def test_a_lost_worker_is_said(code: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "start.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(main, "_START", tmp_path / "start.py")
    if "sleep" in code:
        monkeypatch.setattr(main, "_LONGEST_ROW", 0.1)
    output = tmp_path / "found.json"
    monkeypatch.setattr(main.Bench, "host", lambda self: None)
    main.main(["--cpu", "--size", "small", "--rows", "^pad_(constant|reflect)", "--output", str(output)])
    found = results.load(output)
    assert [row.ways["deterministic"] for row in found.rows] == [Way(None, note=note)] * 2


def test_time_limit_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main.Bench, "host", lambda self: None)
    options = ["--cpu", "--size", "small", "--rows", "^pad_circular", "--limit", "0"]
    assert main.main([*options, "--output", str(tmp_path / "results")]) == 0
    # A folder gets a file that is named after device and date.
    (path,) = (tmp_path / "results").iterdir()
    assert results.load(path).file_name == path.name
    assert "Not run: pad_circular bw f32 1x2x8x8 pad 3: no time left" in capsys.readouterr().out


def test_what_only_a_gpu_measures_runs_here_too(rng: np.random.Generator) -> None:
    found = measure.waiting(rng, (1, 2, 8, 8))
    assert 0 < found["returned"] <= found["done"]
    counts = measure.launches(rng)
    # The CPU has no kernels that a profiler names.
    assert all(each == {"in a program": None, "by the array function": None} for each in counts.values())
    whole = example(launches=counts, waiting=found)
    assert "kernels in a program" not in report.facts(whole)


def test_launches_are_counted_of_the_same_calls(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []

    def bits_of(call: Callable[[], Any]) -> float:
        found.append(b"".join(np.asarray(each).tobytes() for each in jax.tree.leaves(call())))
        return 1.0

    monkeypatch.setattr(measure, "_num_kernels", bits_of)
    counts = measure.launches(rng)
    assert len(found) == 2 * len(counts)
    assert found[::2] == found[1::2]


def example(**changes: Any) -> Result:
    """A result that breaks no promise, with some of it changed."""
    origin = {"date": "2026-01-02 03:04 UTC", "device": "A GPU", "backend": "cpu", "driver": "1", "not_run": []}
    calls = {results.BARE: 4.0, "jitted grid_sample": 6.0, "jitted pad": 5.0}
    calls |= {results.NOT_JITTED: 5.0, results.EAGER: 30.0}
    whole = Result(
        {**origin, "versions": {"jax": "1.2"}},
        calls,
        {"grid_sample": 0.4, "x * c": 3.0},
        {"segment_sum": {"in a program": 4.0, "by the array function": 4.0}},
        {"returned": 10.0, "done": 1000.0},
        [
            RowResult(
                "a row", {"ours": Way(10.0, True), "xla": Way(25.0, False), "deterministic": Way(None, note="late")}
            )
        ],
    )
    for name, value in changes.items():
        setattr(whole, name, value)
    return whole


def test_results_survive_json(tmp_path: Path) -> None:
    example().save(tmp_path / "found.json")
    assert results.load(tmp_path / "found.json") == example()
    (tmp_path / "found.json").write_text(json.dumps({"schema": 0}), encoding="utf-8")
    with pytest.raises(ValueError, match="is not a benchmark result of schema 1"):
        results.load(tmp_path / "found.json")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"from_python": {**example().from_python, "jitted pad": 7.0}}, "jitted pad: 1.75 x"),
        ({"from_python": {**example().from_python, results.EAGER: 20.0}}, "4.0 times cheaper"),
        ({"in_executables": {"segment_sum": 1.5}}, "segment_sum in an executable: 1.50 us"),
        ({"launches": {"sum": {"in a program": 5.0, "by the array function": 4.0}}}, "sum: 5.0 kernels in a program"),
        ({"waiting": {"returned": 900.0, "done": 1000.0}}, "returned only when"),
        ({"rows": [RowResult("a row", {"ours": Way(1.0, False)})]}, "a row: our bits differ"),
        ({"rows": [RowResult("a row", {"ours": Way(None, note="no memory")})]}, "a row: no memory"),
    ],
)
def test_broken_promises_are_faults(changes: dict[str, Any], fault: str) -> None:
    assert not example().faults
    assert report.verdict(example()) == "every promise was kept"
    (found,) = example(**changes).faults
    assert fault in found
    assert report.verdict(example(**changes)) == f"BROKEN: {found}"


def test_render_fills_the_page(tmp_path: Path) -> None:
    page = tmp_path / render.PAGE
    page.parent.mkdir()
    (tmp_path / render.FOLDER).mkdir(parents=True)
    page.write_text(f"before\n{render.BEGIN}\nold\n{render.END}\nafter\n", encoding="utf-8")
    render.render(tmp_path)
    assert page.read_text(encoding="utf-8") == f"before\n{render.BEGIN}\n{NOTHING}\n{render.END}\nafter\n"
    example().save(tmp_path / render.FOLDER / example().file_name)
    render.render(tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "| a row | **10.0** | same | 25.0 | 2.50 x | differ | late |  |  |" in text
    assert "segment_sum: 4 kernels in a program, 4 by the array function." in text
    assert f"From [this file](../{render.FOLDER}/a-gpu-2026-01-02.json)." in text
    assert text.endswith(f"{render.END}\nafter\n")
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match=r"jax\.md: wanted one"):
        render.render(tmp_path)


def test_the_page_is_fresh() -> None:
    page = ROOT / render.PAGE
    text = page.read_text(encoding="utf-8")
    assert text.count(render.BEGIN) == text.count(render.END) == 1
    fresh = with_part(page, render.BEGIN, render.END, render.part(ROOT))
    assert fresh == text, "run python3 tools/bench.py --render"
