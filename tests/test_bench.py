# SPDX-License-Identifier: Apache-2.0
"""The benchmark on tiny problems: every row runs, wrong results are caught, results survive JSON, the README is fresh.

No test looks at how long anything took.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from operators import RECORDS
from PIL import Image

import pybaracuda
from benchmarks.harness import contenders, host_cost, measure, page, plot, render, report, results, table
from benchmarks.harness import main as bench
from benchmarks.harness import place as places
from benchmarks.harness.case import Case, Limit, Row
from benchmarks.harness.contenders import Contender, RawLibrary
from benchmarks.harness.device import DevicePlace
from benchmarks.harness.draw import Draw
from benchmarks.harness.place import Place
from benchmarks.harness.results import Contestant, Result, RowResult, Timing
from benchmarks.pytorch import main as pytorch_bench
from benchmarks.pytorch import render as pytorch_render
from benchmarks.xla import main as jax_bench
from pybaracuda._abi import OPERATORS
from verify.memory.tensors import Tensor, copy_bytes, same_bits

ROOT = Path(__file__).resolve().parent.parent
# A row in float32 for every operator: what the tests of faults and of peers need.
KINDS = list({row.case.operator: row for row in table.ROWS if row.case.element == "f32"}.values())


@pytest.fixture(autouse=True)
def small_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_HOST_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(places, "_RATE_BYTES", 1 << 16)
    monkeypatch.setattr(places, "_RATE_REPEATS", 1)


@pytest.fixture(autouse=True)
def jax_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmark owns its process and sets JAX up for itself; other tests must not see that."""
    monkeypatch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS", ""))
    wide = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", wide)


@lru_cache(maxsize=1)
def device_place() -> DevicePlace:
    return DevicePlace()


@pytest.fixture(scope="module")
def single() -> Iterator[RawLibrary]:
    with contenders.single_thread_library(Place(), table.WARM_UP) as library:
        yield library


def setting(single: RawLibrary | None = None, **others: Any) -> measure.Setting:
    given: dict[str, Any] = {"place": Place(), "frameworks": (), "libraries": (), "copy_rate": 1e9, "repeat": 1}
    return measure.Setting(**{**given, "single": single, **others})


def small(row: Row, backend: str = "cpu") -> Row:
    return Row(row.case.small(), backend, row.limits, row.headline)


def identity(row: Row) -> str:
    return f"{row.backend}-{row.case.operator}-{row.case.element}-{row.case.text}"


# ---- every row


@pytest.mark.parametrize("row", table.ROWS, ids=identity)
def test_row_is_right(row: Row, backend: str, single: RawLibrary) -> None:
    # The shapes of one backend's rows shrink to what the other's do, so both run all of them.
    here = setting(single) if backend == "cpu" else setting(place=device_place())
    found = measure.measure(small(row, backend), here, Draw())
    assert found.right, report.lines(Result({"device": ""}, [found]), found)
    assert found.ours.timing is not None, found.ours.note
    assert (found.ours.stable, found.ours.written, found.twin_same) == (True, True, True)
    assert found.ours.of_bound is not None
    assert found.ours.of_bound <= 1
    assert found.bytes > 0
    json.dumps(asdict(found))  # no number of NumPy's


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_operator_has_a_row(backend: str) -> None:
    """Of the generated table: an operator that is wired and not measured fails here."""
    lacking = set(OPERATORS) - {row.case.operator for row in table.ROWS if row.backend == backend}
    files = {f"benchmarks/operators/{OPERATORS[name].family}.py" for name in lacking}
    assert not lacking, f"{sorted(lacking)} have no row on {backend}: add them to {sorted(files)}"
    assert {row.case.operator for row in KINDS} == set(OPERATORS)


def test_names_are_unique() -> None:
    for backend in ("cpu", "cuda"):
        names = [row.name for row in table.ROWS if row.backend == backend]
        assert len(set(names)) == len(names)


def test_limits_name_rows_that_exist() -> None:
    names = {(row.backend, row.name) for row in table.ROWS}
    for row in table.ROWS:
        for limit in row.limits:
            assert limit.text
            assert limit.kind != "row" or (row.backend, limit.of) in names


def test_same_entropy_gives_the_same_inputs() -> None:
    case = table.ROWS[0].case.small()
    first, other = Draw(), Draw()
    again = Draw(first.entropy)
    inputs, same, different = case.inputs(first), case.inputs(again), case.inputs(other)
    for name, array in inputs.items():
        assert same_bits(array, same[name])
        assert not same_bits(array, different[name])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, (3 << 20) // 4 + 5])
def test_any_bit_that_differs_is_seen(rng: np.random.Generator, count: int) -> None:
    """Also in arrays that several threads share, at the ends of their shares, and in an odd rest."""
    values = rng.integers(0, 256, 4 * count + count % 4, np.uint8)
    copy = np.empty_like(values)
    copy_bytes(copy, values)
    assert same_bits(values, copy)
    assert not same_bits(values, values[:-1]) or not count
    for at in {0, values.size // 2, values.size // 16 * 8 - 1, values.size // 16 * 8, values.size - 1} if count else ():
        copy[at] ^= 1
        assert not same_bits(values, copy)
        copy[at] ^= 1


# ---- faults


def fault(monkeypatch: pytest.MonkeyPatch, after: Callable[[Place, list[Tensor]], None]) -> None:
    """Plant something after each of our calls."""
    right = contenders.ours

    def wrong(case: Case, plan: Any, tensors: Mapping[str, Tensor]) -> Contender:
        contender, host = right(case, plan, tensors), Place()
        run, outputs = contender.run, [tensors[name] for name in case.outputs()]

        def run_wrong() -> None:
            run()
            after(host, outputs)

        contender.run = run_wrong
        return contender

    monkeypatch.setattr(contenders, "ours", wrong)


@pytest.mark.parametrize("row", KINDS, ids=identity)
def test_wrong_values_are_seen(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(host: Place, outputs: list[Tensor]) -> None:
        for output in outputs:
            values = host.view(output)
            values[...] = values * np.float32(1.001) if values.dtype.kind == "f" else values + 1

    fault(monkeypatch, scale)
    found = measure.measure(small(row), setting(), Draw())
    assert found.ours.of_bound is not None
    assert found.ours.of_bound > 1
    assert found.ours.stable
    assert not found.right


@pytest.mark.parametrize("row", KINDS, ids=identity)
def test_one_wrong_bit_is_seen(row: Row, single: RawLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(host: Place, outputs: list[Tensor]) -> None:
        host.view(outputs[-1]).reshape(-1).view(np.uint32)[-1] ^= 1

    fault(monkeypatch, flip)
    found = measure.measure(small(row), setting(single), Draw())
    assert found.twin_same is False
    assert not found.right


def test_forgotten_element_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    right = contenders.ours

    def forgetful(case: Case, plan: Any, tensors: Mapping[str, Tensor]) -> Contender:
        contender, host = right(case, plan, tensors), Place()
        run, (output,) = contender.run, [tensors[name] for name in case.outputs()]

        def run_but_one() -> None:
            flat = host.view(output).reshape(-1)
            kept[:] = [flat[-1:].copy()]
            run()
            flat[-1:] = kept[0]

        contender.run = run_but_one
        return contender

    monkeypatch.setattr(contenders, "ours", forgetful)
    found = measure.measure(small(table.ROWS[0]), setting(), Draw())
    assert found.ours.stable
    assert found.ours.written is False
    assert not found.right


def test_changing_bits_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(10**6))

    def change(host: Place, outputs: list[Tensor]) -> None:
        host.view(outputs[0]).reshape(-1).view(np.uint32)[0] ^= next(calls) % 2

    fault(monkeypatch, change)
    found = measure.measure(small(table.ROWS[0]), setting(), Draw())
    assert found.ours.stable is False
    assert not found.right


def test_wrong_result_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault(monkeypatch, lambda host, outputs: host.fill(outputs[0], 0))
    arguments = ["--cpu", "--small", "--no-peers", "--repeat", "1", "--rows", "^affine_grid_2d fw"]
    assert bench.main([*arguments, "--json", str(tmp_path / "wrong.json")]) == 1
    assert "FAILED: wrong results in 1 rows: affine_grid_2d fw" in capsys.readouterr().out.splitlines()[-1]


def test_broken_row_is_wrong_and_the_next_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(host: Place, outputs: list[Tensor]) -> None:
        raise pybaracuda.InternalError("launch failed")

    fault(monkeypatch, breaks)
    found = measure.measure(small(table.ROWS[0]), setting(), Draw())
    assert found.ours.note == "failed: launch failed"
    assert not found.right


# ---- peers

NOT_IN_TORCH = frozenset[str]().union(*(record.not_in_torch for record in RECORDS))
NOT_IN_JAX = frozenset[str]().union(*(record.not_in_jax for record in RECORDS))
# Boxes are named by whole numbers, which have no error.
WITHOUT_ERROR = frozenset({"nms_with_scores"})
# torchvision's gradient is not that of its forward, as docs/differences.md says.
ANOTHER_GRADIENT = frozenset({"ps_roi_pool_backward"})


def agreeing(row: Row, framework: contenders.Framework) -> list[Contestant]:
    found = measure.measure(small(row), setting(frameworks=(framework,)), Draw())
    for peer in found.peers:
        assert peer.timing is not None, f"{peer.name}: {peer.note}"
        assert peer.timing.us >= 0
    return found.peers


@pytest.mark.parametrize("row", KINDS, ids=identity)
def test_torch_does_the_same(row: Row, torch: Any) -> None:
    peers = agreeing(row, contenders.Torch(Place()))
    assert bool(peers) == (row.case.operator not in NOT_IN_TORCH)
    for peer in peers:
        # Its rounding differs from ours; a wrong argument would be seen in the first digit.
        assert (peer.error is None) == (row.case.operator in WITHOUT_ERROR)
        if row.case.operator not in WITHOUT_ERROR | ANOTHER_GRADIENT:
            assert peer.error < 1e-4


@pytest.mark.parametrize("row", KINDS, ids=identity)
def test_jax_does_the_same(row: Row) -> None:
    peers = agreeing(row, contenders.Jax(Place()))
    assert [peer.name for peer in peers] == ([] if row.case.operator in NOT_IN_JAX else ["JAX"])
    for peer in peers:
        assert peer.error is not None
        assert peer.error < 1e-4


def test_jax_batches_wait_for_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "_JAX_FLUSH_BYTES", 64)
    ran: list[int] = []
    batch = contenders.Jax(Place())._batch(lambda: ran.append(1))
    batch(3)
    assert len(ran) == 3
    seconds = measure._batched(batch, contenders.Jax(Place())._batch(lambda: None))
    assert len(seconds) == measure._BATCHES
    assert min(seconds) >= 0


def test_slow_calls_are_timed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_ENOUGH_SECONDS", 0.05)
    monkeypatch.setattr(measure, "_BATCH_SECONDS", 0.01)
    ran: list[int] = []
    quick, slow = Place().times([lambda: None, lambda: time.sleep(0.02)], 9)
    assert (len(quick), len(slow)) == (9, places.FEWEST_REPEATS)

    def batch(calls: int) -> None:
        ran.append(calls)
        time.sleep(0.02 * calls)

    seconds = measure._batched(batch, lambda calls: None)
    assert len(seconds) == places.FEWEST_REPEATS
    assert set(ran) == {1}


@pytest.mark.parametrize("at_once", [True, False], ids=["prepares", "runs"])
def test_peer_that_raises_is_noted(monkeypatch: pytest.MonkeyPatch, torch: Any, at_once: bool) -> None:
    def unhappy() -> Any:
        raise ValueError("too many elements")

    def calls(self: Case, torch: Any, given: Any) -> Any:
        return unhappy() if at_once else {"PyTorch": unhappy}

    monkeypatch.setattr(type(table.ROWS[0].case), "torch_calls", calls)
    found = measure.measure(small(table.ROWS[0]), setting(frameworks=(contenders.Torch(Place()),)), Draw())
    assert [(peer.name, peer.timing, peer.note) for peer in found.peers] == [("PyTorch", None, "too many elements")]
    assert found.right


def test_missing_frameworks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "find_spec", lambda name: None)
    found, missing = contenders.frameworks(Place())
    assert found == []
    assert missing == dict.fromkeys(("torch", "cupy", "jax"), "not installed")


@pytest.mark.parametrize("row", KINDS, ids=identity)
def test_library_of_the_same_abi_runs_beside_ours(row: Row, tmp_path: Path) -> None:
    copy = Path(shutil.copy(pybaracuda.library_path("cpu"), tmp_path))
    found = measure.measure(small(row), setting(libraries=(RawLibrary("again", copy),)), Draw())
    (again,) = found.peers
    assert (again.name, again.note, again.stable, again.written) == ("again", "", True, True)
    assert again.error == found.ours.error


def test_library_without_the_symbol_is_said_so() -> None:
    found = measure.measure(small(table.ROWS[0]), setting(libraries=(RawLibrary("libm", Path("libm.so.6")),)), Draw())
    assert [(peer.name, peer.timing, peer.note) for peer in found.peers] == [("libm", None, "it has no such symbol")]
    assert found.right


def test_library_that_wants_zeros_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RawLibrary.contender

    def adding(self: RawLibrary, case: Case, plan: Any, place: Place, tensors: Mapping[str, Tensor]) -> Contender:
        contender = right(self, case, plan, place, tensors)
        (output,) = (tensors[name] for name in case.outputs())
        run = contender.run

        def run_onto() -> None:
            before = place.get(output)
            run()
            place.view(output)[...] += before

        def zero_and_run() -> None:
            place.fill(output, 0)
            run_onto()

        contender.run = run_onto
        assert contender.zeroing is not None
        contender.zeroing.run = zero_and_run
        return contender

    monkeypatch.setattr(RawLibrary, "contender", adding)
    copy = Path(shutil.copy(pybaracuda.library_path("cpu"), tmp_path))
    found = measure.measure(small(table.ROWS[0]), setting(libraries=(RawLibrary("adds", copy),)), Draw())
    (adds,) = found.peers
    assert adds.note == "outputs zeroed first, as it asks for"
    assert adds.error == found.ours.error


# ---- results


def example() -> Result:
    timing = Timing(100.0, 90.0, 120.0, 5)
    ours = Contestant("pybaracuda", timing, "", True, True, 1e-7, 0.25)
    peers = [
        Contestant("slow", Timing(300.0, 290.0, 310.0, 5), "", False, None, 2e-7, 0.5),
        Contestant("absent", None, "it has no such symbol"),
        Contestant("best", Timing(150.0, 149.0, 152.0, 5), "a | b", True, True, 0.0, 0.0),
    ]
    first = RowResult(
        "first", "cuda", "pad_constant_backward", "f32", True, 10**8, 40.0, 7, "all", ours, Timing(60.0, 59.0, 61.0, 5)
    )
    first.peers, first.twin, first.twin_same = peers, "the CPU library", True
    second = RowResult(
        "second", "cuda", "pad_reflect_backward", "f32", False, 10**7, 4.0, 8, "", Contestant("pybaracuda", None, "no"),
        Timing(6.0, 5.0, 7.0, 5),
    )  # fmt: skip
    origin = {
        "date": "2026-01-02 03:04 UTC",
        "device": "NVIDIA H100 80GB HBM3",
        "backend": "cuda",
        "driver": "580.1",
        "versions": {"pybaracuda": "0.1.0"},
        "repeat": 5,
        "flush": "nothing",
        "copy_rate": 3e12,
        "floor_us": 3.5,
        "clocks": {"clocks.sm": "1980 MHz"},
    }
    host = [
        results.HostResult("called again", timing, 99.0, 2.0),
        results.HostResult("another", timing, note="n"),
    ]
    return Result(origin, [first, second], host)


def test_a_run_says_how_many_rows_it_lacks() -> None:
    result = example()
    of_backend = [row for row in table.ROWS if row.backend == "cuda"]
    lacking = f"{len(of_backend)} of the benchmark's {len(of_backend)} rows are not in this run."
    assert lacking in " ".join(report.origin(result).split())
    result.rows = [replace(result.rows[0], name=row.name) for row in of_backend]
    assert "not in this run" not in report.origin(result)


def test_json_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    example().save(path)
    assert results.load(path) == example()
    path.write_text('{"schema": 0}')
    with pytest.raises(ValueError, match="is not a benchmark result of schema 1"):
        results.load(path)


def test_later_rows_take_their_places() -> None:
    result, later = example(), example()
    later.origin["date"] = "2026-01-03 04:05 UTC"
    later.rows = [replace(later.rows[0], light_us=7.0), replace(later.rows[0], name="third")]
    joined = results.updated(result, later)
    assert [(row.name, row.measured) for row in joined.rows] == [
        (result.rows[0].name, "2026-01-03 04:05 UTC"),
        (result.rows[1].name, ""),
        ("third", "2026-01-03 04:05 UTC"),
    ]
    assert joined.rows[0].light_us == 7.0
    assert joined.origin == example().origin
    assert "2 rows and their peers were measured 2026-01-03 04:05 UTC" in " ".join(report.origin(joined).split())
    later.rows = [example().rows[1]]
    assert later.rows[0].ours.timing is None
    assert "were measured 2026-01-03" not in report.origin(results.updated(result, later))
    later.origin["driver"] = "another"
    with pytest.raises(ValueError, match="driver differs"):
        results.updated(result, later)


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (Limit("us", 100, "H100"), True),
        (Limit("us", 99, "H100"), False),
        (Limit("us", 99, "H200"), None),
        (Limit("copy", 1.7), True),
        (Limit("copy", 1.6), False),
        (Limit("light", 2.5), True),
        (Limit("light", 2.4), False),
        (Limit("peer", 1.0), True),
        (Limit("peer", 0.5), False),
        (Limit("peer", 1 / 3, "slow"), True),
        (Limit("peer", 1 / 4, "slow"), False),
        (Limit("peer", 1.0, "absent"), None),
        (Limit("row", 1.0, "first"), True),
        (Limit("row", 0.9, "first"), False),
        (Limit("row", 1.1, "second"), None),
    ],
    ids=str,
)
def test_limit_is_judged(limit: Limit, kept: bool | None) -> None:
    result = example()
    assert result.met(result.rows[0], limit) is kept
    assert result.met(result.rows[1], limit) is None


def test_file_name_sorts_by_date(tmp_path: Path) -> None:
    assert example().file_name == "nvidia-h100-80gb-hbm3-2026-01-02.json"
    for name in ("one-gpu-2026-01-02.json", "one-gpu-2025-12-31.json", "cpu-2024-01-01.json"):
        (tmp_path / name).touch()
    assert {path.name for path in results.newest(tmp_path)} == {"one-gpu-2026-01-02.json", "cpu-2024-01-01.json"}
    assert results.newest(tmp_path / "absent") == []


def test_reports_say_what_is_wrong() -> None:
    result = example()
    row = result.rows[0]
    row.limits = [Limit("us", 99, "H100"), Limit("peer", 1.0)]
    assert "MISSED: at most 99 us" in report.lines(result, row)
    assert report.verdict(result) == "FAILED: wrong results in 1 rows: second"
    result.rows[1].ours.note = "not supported: not yet"
    assert report.verdict(result) == "2 rows, 1 of 2 limits kept"
    lines = report.table(result).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {12}
    assert "| **100** | 40 % | same | 150 (best) | 1.50 x | same | missed: at most 99 us |" in lines[2]
    assert "| 4.0 | 6.0 | not supported |" in lines[3]
    assert len(report.table(result, report.headlines(result, 6)).splitlines()) == 3
    assert {line.replace("\\|", "").count("|") for line in report.peers_table(result).splitlines()} == {9}


def test_picture_has_a_colour_for_every_family() -> None:
    assert {row.family for row in example().rows} == {"pad"}
    assert len({operator.family for operator in OPERATORS.values()}) <= len(plot._COLOURS)


def test_render_fills_a_tree(tmp_path: Path) -> None:
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    readme = tmp_path / "README.md"
    through_pytorch = f"{pytorch_render.BEGIN}\n{page.NOTHING}\n{pytorch_render.END}\n"
    readme.write_text(f"before\n{render.BEGIN}\nold\n{render.END}\nafter\n{through_pytorch}", encoding="utf-8")
    assert bench.main(["--render", str(tmp_path)]) == 0
    assert f"{render.BEGIN}\n{page.NOTHING}\n{render.END}" in readme.read_text(encoding="utf-8")
    result = example()
    result.save(tmp_path / "benchmarks/results" / result.file_name)
    assert bench.main(["--render", str(tmp_path)]) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{render.BEGIN}\nMicroseconds, measured 2026-01-02")
    assert text.endswith(f"{render.END}\nafter\n{through_pytorch}")
    assert "| first |" in text
    assert "| second |" not in text
    assert "| second |" in (tmp_path / "benchmarks/README.md").read_text(encoding="utf-8")
    source = render.picture_source(tmp_path)
    assert source is not None
    assert Image.open(tmp_path / "benchmarks/roofline.png").text["Source"] == source[1]


@pytest.mark.parametrize("text", ["no markers", "<a>\nno end", "<b>\n<a>\n", "<a>\n<b>\n<a>\n<b>\n"])
def test_a_page_needs_its_markers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "README.md"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"README\.md: wanted one <a> followed by one <b>"):
        page.with_part(file, "<a>", "<b>", "part")


# ---- the command


def test_command_writes_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cpu", "--small", "--repeat", "2", "--rows", "affine_grid_2d [bf]w|pad_constant bw f32"]
    assert bench.main([*arguments, "--json", str(tmp_path / "new"), "--plot", str(tmp_path / "picture.png")]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1].startswith("3 rows, ")
    (path,) = (tmp_path / "new").iterdir()
    result = results.load(path)
    assert path.name == result.file_name
    assert [row.name for row in result.rows] == [
        row.name for row in map(small, chosen("affine_grid_2d [bf]w|pad_constant bw f32"))
    ]
    for row in result.rows:
        assert row.name in output
    assert {limit.limit_us for limit in result.host} >= {2.0, 4.0, 10.0}
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_later_run_updates_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, quick = tmp_path / "result.json", ["--cpu", "--small", "--no-peers", "--repeat", "1"]
    assert bench.main([*quick, "--rows", "^affine_grid_2d [bf]w", "--json", str(file)]) == 0
    before = results.load(file)
    assert bench.main([*quick, "--rows", "^affine_grid_2d fw|^pad_constant bw f32", "--update", str(file)]) == 0
    after = results.load(file)
    names = [row.name for row in before.rows]
    assert [row.name for row in after.rows][: len(names)] == names
    assert {row.name for row in after.rows if not row.measured} == {name for name in names if " bw " in name}
    assert len(after.rows) > len(names)
    file.write_text(file.read_text().replace(f'"{before.origin["device"]}"', '"another machine"'))
    assert bench.main([*quick, "--rows", "^affine_grid_2d fw", "--update", str(file)]) == 2
    assert "--update: device differs" in capsys.readouterr().err


def chosen(pattern: str) -> list[Row]:
    options = bench._arguments(["--rows", pattern])
    return [row for row in table.ROWS if row.backend == "cpu" and options.rows.search(row.name)]


def test_list_names_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--cpu", "--list", "--rows", "^roi_align fw"]) == 0
    assert capsys.readouterr().out.splitlines() == [row.name for row in chosen("^roi_align fw")]


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        *((each, ["--rows", "("], "not a regular expression") for each in (bench, pytorch_bench, jax_bench)),
        (bench, ["--lib", "nothing"], "wanted NAME=path.so"),
        (bench, ["--lib", "x=/no/such.so"], "does not load"),
        *((each, ["--repeat", "0"], "at least 1") for each in (bench, pytorch_bench)),
        (bench, ["--repeat", "some"], "at least 1"),
        (bench, ["--json", "/no/such/folder/x.json"], "does not exist"),
        *((each, ["--output", "/no/such/folder/x.json"], "does not exist") for each in (pytorch_bench, jax_bench)),
        (bench, ["--plot", "/no/such/folder/x.png"], "does not exist"),
        *((each, ["--update", "/no/such/file.json"], "no file") for each in (bench, pytorch_bench)),
        (pytorch_bench, ["--sections", "rows,columns"], "there is no columns; wanted some of host"),
    ],
    ids=lambda each: each.__name__.split(".")[1] if hasattr(each, "__name__") else str(each),
)
def test_bad_option_is_one_sentence(
    command: ModuleType, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["--cpu", *arguments])
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err.splitlines()[-1]


def test_no_row_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--cpu", "--rows", "no such row"]) == 2
    assert capsys.readouterr().err == "No row's name matches; --list prints them.\n"


def test_host_cost_is_measured_against_the_bare_call(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    monkeypatch.setattr(host_cost, "_BATCHES", 2)
    monkeypatch.setattr(host_cost, "_CALLS", 3)
    place = Place()
    found = list(host_cost.measure(place, [contenders.Torch(place)]))
    assert [host.limit_us for host in found] == [2.0, 4.0, None, 10.0, 12.0, None]
    for host in found:
        assert host.timing.us > 0
        assert (host.bare_us is None) == (host.kept is None) == (host.limit_us is None)
        assert report.host_line(host)


# ---- what is committed


def test_readme_shows_the_newest_results() -> None:
    readme = ROOT / "README.md"
    fresh = page.with_part(readme, render.BEGIN, render.END, render.readme_part(ROOT))
    assert fresh == readme.read_text(encoding="utf-8"), "run python3 tools/bench.py --render"


def test_benchmark_page_shows_the_newest_results() -> None:
    whole = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert whole == render.whole_page(ROOT), "run python3 tools/bench.py --render"


def test_picture_shows_the_newest_results() -> None:
    picture, source = ROOT / "benchmarks" / "roofline.png", render.picture_source(ROOT)
    assert picture.exists() == (source is not None)
    if source is not None:
        assert Image.open(picture).text["Source"] == source[1], "run python3 tools/bench.py --render"


def test_committed_results_are_right() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = results.load(path)
        assert path.name == result.file_name
        assert all(row.right for row in result.rows), report.verdict(result)
