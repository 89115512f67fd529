# SPDX-License-Identifier: Apache-2.0
"""The benchmark through PyTorch on tiny problems: every row is ours, results survive JSON, the pages are fresh.

No test looks at how long anything took.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from place import available

import pybaracuda
from benchmarks.harness import host_cost, place
from benchmarks.harness.device import DevicePlace
from benchmarks.harness.main import main as bench
from benchmarks.harness.page import NOTHING, with_part
from benchmarks.harness.results import Timing
from benchmarks.pytorch import main, render, report, results, training
from benchmarks.pytorch.results import HostResult, Result, RowResult, Run, Training
from benchmarks.pytorch.rows import ROWS, Row

ROOT = Path(__file__).resolve().parent.parent


def is_usable(module: str) -> bool:
    """Whether a row's operator is there; torchvision can be installed without those that go with this torch."""
    if not module:
        return True
    return available(module) and pybaracuda.backend_available("cuda")


# Without torchvision there are no such rows; that is no skip.
HERE = [row for row in ROWS if is_usable(row.needs)]


@lru_cache(maxsize=1)
def device_place() -> DevicePlace:
    return DevicePlace()


@pytest.fixture
def worker(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The worker's module, with nothing left of what it sets."""
    from benchmarks.pytorch import worker

    deterministic = torch.utils.deterministic
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", deterministic.fill_uninitialized_memory)
    config: Any = importlib.import_module("torch._functorch.config")
    donated = config.donated_buffer
    monkeypatch.setattr(place, "_HOST_FLUSH_BYTES", 1 << 16)
    # What it writes to flush a GPU's cache is large.
    monkeypatch.setattr(worker, "DevicePlace", device_place)
    monkeypatch.setattr(host_cost, "_BATCHES", 2)
    monkeypatch.setattr(host_cost, "_CALLS", 2)
    yield worker
    config.donated_buffer = donated
    import pybaracuda.torch

    pybaracuda.torch.uninstall()
    torch.use_deterministic_algorithms(False)


def work(worker: ModuleType, role: str, device: str) -> Any:
    return worker.Worker(worker.Work(role, device, 1, 5, True))


@pytest.mark.parametrize("row", HERE, ids=lambda row: row.name)
def test_row_is_ours_and_right(row: Row, device: str, worker: ModuleType) -> None:
    runs = work(worker, "ours", device).rows(row, compiled=False)
    found = RowResult(row.name, runs)
    assert set(runs) == {"ours", "ours_flag"}
    assert not found.faults
    for run in runs.values():
        assert not run.note
        assert run.same_bits
        assert run.difference is not None
        assert run.forward is not None
        assert run.backward is not None
    json.dumps(asdict(found))  # no number of another kind


def test_refusals_name_the_operator(worker: ModuleType) -> None:
    """In one word or in several, as PyTorch has them."""
    for name in ("put_", "median CUDA with indices output"):
        text = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms"
        assert worker.reason(RuntimeError(text)) == f"raises ({name})"
    assert worker.reason(RuntimeError("out of memory")) == "out of memory"


def test_pytorchs_own_calls(device: str, worker: ModuleType) -> None:
    row = next(row for row in ROWS if row.host == "grid_sample")
    found = RowResult(row.name, work(worker, "pytorch", device).rows(row, compiled=False))
    assert set(found.runs) == {"pytorch", "flag"}
    assert found.runs["pytorch"].forward is not None
    assert found.runs["pytorch"].taken == {"forward": [], "backward": []}
    assert found.runs["flag"].note == ("raises (grid_sampler_2d_backward_cuda)" if device == "cuda" else "")


@pytest.mark.parametrize("host", ["index_add", "gather of rows"])
def test_compiled_rows_have_the_eager_bits(host: str, device: str, worker: ModuleType) -> None:
    row = next(row for row in ROWS if row.host == host)
    found = RowResult(row.name, work(worker, "ours", device).rows(row, compiled=True))
    assert set(found.runs) == {"ours_compiled"}
    assert not found.faults
    assert found.runs["ours_compiled"].as_eager is True


@pytest.mark.parametrize("role", ["pytorch", "ours"])
def test_host_costs(role: str, device: str, worker: ModuleType) -> None:
    row = next(row for row in ROWS if row.host == "index_add")
    found = work(worker, role, device).host(row)
    way = "pytorch" if role == "pytorch" else "native" if worker.has_native_route() else "python"
    assert (found.name, found.notes, set(found.forward), set(found.both)) == ("index_add", {}, {way}, {way})


def test_what_is_not_ours_is_a_fault(worker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr(worker, "_install", lambda role, deterministic: nullcontext())
    row = next(row for row in ROWS if row.host == "index_add")
    ours = work(worker, "ours", "cpu")
    assert "no call was ours" in RowResult(row.name, ours.rows(row, compiled=False)).faults[0]
    assert "no call was ours" in ours.host(row).notes["native" if worker.has_native_route() else "python"]


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    hosts = [row.host for row in ROWS if row.host]
    assert len(set(hosts)) == len(hosts)


def test_every_operator_taken_over_has_a_row(torch: ModuleType) -> None:
    import pybaracuda.torch

    # By the words that stand in the rows' names.
    words = {"grid_sampler_2d": "grid_sample 2d", "grid_sampler_3d": "grid_sample 3d"}
    words |= {"affine_grid_generator_backward": "affine_grid"}
    words |= {"embedding_dense_backward": "embedding", "sparse_mm": "sparse.mm"}
    words |= {"value_selecting_reduction_backward": "kthvalue"}
    words |= {f"max_pool{axes}d_with_indices": f"max_pool{axes}d" for axes in (2, 3)}
    modes = {"linear1d": "linear", "bilinear2d": "bilinear", "bicubic2d": "bicubic", "trilinear3d": "trilinear"}
    words |= {f"upsample_{name}": f"interpolate {mode}" for name, mode in modes.items()}
    words |= {f"upsample_nearest{axes}d": "interpolate nearest" for axes in (1, 2, 3)}
    words |= {f"_upsample_nearest_exact{axes}d": "interpolate nearest-exact" for axes in (1, 2, 3)}
    words |= {f"_upsample_{mode}2d_aa": f"interpolate {mode} antialiased" for mode in ("bilinear", "bicubic")}
    for name in pybaracuda.torch.operators():
        assert any(words.get(name, name) in row.name for row in ROWS), f"{name}: add it to benchmarks/pytorch/rows.py"


# ---- the command


def test_command_measures_in_processes_of_their_own(
    torch: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.json"
    options = ["--small", "--cpu", "--repeat", "1", "--rows", "^index_add .*64$", "--sections", "rows"]
    assert main.main([*options, "--output", str(output)]) == 0
    found = results.load(output)
    assert [(row.name, set(row.runs)) for row in found.rows] == [(ROWS_OF["index_add"], set(results.EAGER))]
    assert "1 rows" in capsys.readouterr().out
    # Into the same file, which keeps what is not measured again.
    assert main.main([*options[:-2], "--sections", "host", "--rows", "^gather", "--update", str(output)]) == 0
    found = results.load(output)
    assert [row.name for row in found.rows] == [ROWS_OF["index_add"]]
    assert [host.name for host in found.host] == ["gather of rows"]


ROWS_OF = {row.host: row.name for row in ROWS}


def test_time_limit_is_said(torch: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--small", "--cpu", "--rows", "^index_add .*64$", "--sections", "rows", "--limit", "0"]) == 0
    assert f"not run: rows, {ROWS_OF['index_add']}: no time left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "message"),
    [("raise SystemExit(3)", "its process ended"), ("import time; time.sleep(60)", "not done within 1 s")],
)
def test_a_lost_worker_is_said(code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "start.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(main, "_START", tmp_path / "start.py")
    with main.WorkerProcess({}) as process, pytest.raises(main.LostError, match=message):
        process.ask({}, 30 if "SystemExit" in code else 1)


PROGRAM = """
import json, sys
assert sys.argv[1:-2] == ["--steps", "1"], sys.argv
found = {"milliseconds": [3.0, 1.0, 2.0], "weights": "w", "warnings": [], "megabytes": None, "losses": [LOSS]}
open(sys.argv[-1], "w").write(json.dumps(found))
"""


def test_training_is_run_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    monkeypatch.setattr(training, "_PROGRAM", program)
    plain = training.VARIANTS[0]

    def run(code: str, timeout: float = 60) -> Training:
        program.write_text(code, encoding="utf-8")
        return training.run(plain, ["--steps", "1"], timeout)

    found = run(PROGRAM.replace("LOSS", "1.5"))
    assert (found.note, found.median, found.weights, found.last_loss) == ("", 2.0, "w", 1.5)
    assert found.command == "python program.py --steps 1"
    assert run(PROGRAM.replace("LOSS", "float('nan')")).note == "the loss is not finite"
    assert run("raise ValueError('no')").note == "ValueError: no"
    assert run("import time; time.sleep(60)", 1).note == "not done within 1 s"


def test_the_training_program_repeats(on_cuda: str, torch: ModuleType) -> None:
    if not available("torchvision"):
        pytest.skip("no torch")
    sizes = ["--height", "128", "--width", "160", "--images", "1", "--warm-up", "1", "--steps", "2"]
    ours = next(variant for variant in training.VARIANTS if variant.name == "ours")
    first, second = (training.run(ours, sizes, 300) for _ in range(2))
    assert (first.note, first.warnings) == ("", [])
    assert first.weights == second.weights


# ---- what follows from results


def timing(us: float) -> Timing:
    return Timing(us, us, us, 3)


def run(forward: float, backward: float, **others: Any) -> Run:
    taken = {"forward": ["aten::x"], "backward": ["aten::x_backward"]}
    return Run(timing(forward), timing(backward), **{"same_bits": True, "taken": taken, **others})


def example() -> Result:
    origin = {
        "date": "2026-01-02 03:04 UTC",
        "device": "A GPU",
        "backend": "cuda",
        "driver": "1",
        "versions": {"torch": "2.9"},
        "repeat": 3,
        "flush": "1 MiB written",
        "not_run": ["host, roi_pool: no time left", "rows, gather 1 x 1: no time left"],
        "sections": list(main.SECTIONS),
    }
    plain = Run(timing(100), timing(200), same_bits=False, taken={"forward": [], "backward": []})
    rows = [
        RowResult("index_add 1 x 1", {"pytorch": plain, "flag": run(1000, 200), "ours": run(50, 201.5)}),
        RowResult("gather 1 x 1", {"pytorch": plain, "flag": Run(note="raises (x)"), "ours_flag": run(50, 100)}),
    ]
    hosts = [
        HostResult("fast", {"pytorch": timing(5), "native": timing(7)}, {"pytorch": timing(20), "native": timing(25)}),
        HostResult("slow", {"pytorch": timing(5), "native": timing(8)}, {"pytorch": timing(20), "native": timing(21)}),
        HostResult("none", {"pytorch": timing(5)}, {"pytorch": timing(20)}, {"python": "no call was ours"}),
    ]
    trained = [
        Training("plain", "python x", [80.0, 82.0, 81.0], "a"),
        Training("plain", "python x", [83.0], "b"),
        Training("ours", "python -m", [84.0], "c"),
        Training("ours", "python -m", [84.5], "c"),
        Training("flag", "python x", note="not done within 1 s"),
    ]
    return Result(origin, hosts, rows, trained)


def test_slower_rows_are_named() -> None:
    first, second = example().rows
    assert first.ratios() == pytest.approx({"ours forward": 2.0, "ours backward": 200 / 201.5})
    assert first.slower == ["ours backward 0.99 x"]
    assert second.slower == []
    # What PyTorch's own kernel did is no comparison.
    first.runs["ours"].taken["backward"] = []
    assert first.ratio("ours", "pytorch", "backward") is None
    assert first.slower == []


@pytest.mark.parametrize(
    ("others", "fault"),
    [
        ({"same_bits": False}, "ours: bits differ"),
        ({"difference": 0.9}, "ours: off by 9.0e-01"),
        ({"difference": float("nan")}, "ours: off by nan"),
        ({"as_eager": False}, "ours: not the eager program's bits"),
        ({"note": "no memory"}, "ours: no memory"),
        ({"taken": {}, "left": ["aten::x: a reason"]}, "ours: no call was ours (aten::x: a reason)"),
    ],
)
def test_faults_are_found(others: dict[str, Any], fault: str) -> None:
    assert RowResult("row", {"ours": run(1, 1)}).faults == []
    assert RowResult("row", {"ours": run(1, 1, **others)}).faults == [fault]
    assert RowResult("row", {"pytorch": run(1, 1, **others)}).faults == []


def test_training_that_differs_or_warns_is_a_fault() -> None:
    result = example()
    # That of PyTorch's flag did not end: no fault of ours.
    assert result.faults == []
    result.training[-1].variant = "plain"
    assert result.faults == ["training, plain: not done within 1 s"]
    assert result.milliseconds("plain") == 82.0
    result.training[3].weights = "d"
    result.training[2].warnings = ["a warning"]
    assert result.faults[1:] == [
        "training, ours: the runs end with different weights",
        "training, ours: a warning",
    ]


def test_host_limits() -> None:
    assert [host.kept for host in example().host] == [True, False, None]


def test_results_survive_json(tmp_path: Path) -> None:
    result = example()
    result.save(tmp_path / "found.json")
    assert results.load(tmp_path / "found.json") == result
    (tmp_path / "other.json").write_text('{"schema": 9}', encoding="utf-8")
    with pytest.raises(ValueError, match="is not a PyTorch benchmark's result of schema 1"):
        results.load(tmp_path / "other.json")


def test_update_keeps_the_rest() -> None:
    earlier, later = example(), example()
    later.host, later.rows = [], [RowResult("gather 1 x 1", {"ours": run(1, 2)})]
    later.training = [Training("ours", "python -m", [1.0], "e")]
    later.origin |= {"date": "2026-02-03 04:05 UTC", "sections": ["rows", "training"], "not_run": []}
    found = results.updated(earlier, later)
    assert found.host == earlier.host
    assert found.origin["not_run"] == ["host, roi_pool: no time left"]
    assert "Measured later, or again: rows, training: 2026-02-03 04:05 UTC." in report.origin(found).replace("\n", " ")
    assert found.file_name == earlier.file_name
    assert set(found.row("gather 1 x 1").runs) == {"pytorch", "flag", "ours_flag", "ours"}
    assert [each.weights for each in found.training] == ["a", "b", "", "e"]
    later.origin = {**later.origin, "device": "another"}
    with pytest.raises(ValueError, match="device differs"):
        results.updated(earlier, later)


def test_tables_say_what_was_found() -> None:
    result = example()
    rows = report.rows_table(result, results.EAGER).splitlines()
    assert rows[2] == "| index_add 1 x 1 | 100 / 200 ≠ | 1,000 / 200 | 50.0 / 202 | 2.00 / 0.99 |  |  |"
    assert rows[3] == "| gather 1 x 1 | 100 / 200 ≠ | raises (x) |  |  | 50.0 / 100 | 2.00 / 2.00 |"
    assert {line.count("|") for line in rows} == {8}
    assert report.host_table(result).splitlines()[2] == "| fast | 5.0 / 20.0 | 7.0 / 25.0 | kept |"
    trained = report.training_table(result).splitlines()
    assert trained[2] == "| PyTorch | 81.0 to 83.0 | 1.00 x | differ | 0 |"
    assert trained[3].endswith("| 84.0 to 84.5 | 1.03 x | the same in 2 runs | 0 |")
    assert "| gather 1 x 1 | 300 | raises | 150 | 2.00 x |" in report.few_rows_table(result)
    assert "1 are slower (index_add 1 x 1)" in report.summary(result)
    refused = report.refusals_table(result).splitlines()
    assert refused[2:] == ["| gather 1 x 1 | raises (x) | 50.0 / 100 | equal | 2.00 / 2.00 |"]
    assert report.refusals(result).startswith("Of 2 calls PyTorch refuses 1 under")
    assert report.refusals(result).endswith("installed, none.")
    del result.rows[1].runs["ours_flag"]
    assert report.refusals(result).endswith("installed, 1.")
    result = example()
    text = report.verdict(result)
    for part in ("not run: host, roi_pool", "slower than PyTorch", "host than allowed: slow", "1.03 x the plain step"):
        assert part in text
    for row in result.rows:
        assert report.row_lines(row, list(row.runs)).startswith(row.name)


def test_render_fills_a_tree(tmp_path: Path) -> None:
    (tmp_path / render.FOLDER).mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "pytorch.md"
    page.write_text(f"before\n{render.BEGIN}\nold\n{render.END}\nafter\n", encoding="utf-8")
    render.render(tmp_path)
    assert page.read_text(encoding="utf-8") == f"before\n{render.BEGIN}\n{NOTHING}\n{render.END}\nafter\n"
    result = example()
    result.save(tmp_path / render.FOLDER / result.file_name)
    render.render(tmp_path)
    assert "| PyTorch | 81.0 to 83.0 |" in page.read_text(encoding="utf-8")
    assert "a-gpu-2026-01-02.json" in (tmp_path / render.PAGE).read_text(encoding="utf-8")
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match=r"pytorch\.md: wanted one"):
        render.render(tmp_path)


def test_the_harness_renders_it_too(tmp_path: Path) -> None:
    from benchmarks.harness import render as harness

    (tmp_path / "benchmarks/results").mkdir(parents=True)
    markers = (harness.BEGIN, harness.END, render.BEGIN, render.END)
    (tmp_path / "README.md").write_text("\n".join(markers), encoding="utf-8")
    assert bench(["--render", str(tmp_path)]) == 0
    assert (tmp_path / render.PAGE).is_file()
    assert f"{render.BEGIN}\n{NOTHING}\n{render.END}" in (tmp_path / "README.md").read_text(encoding="utf-8")


# ---- what is committed


def test_page_shows_the_newest_results() -> None:
    text = (ROOT / render.PAGE).read_text(encoding="utf-8")
    assert text == render.page(ROOT), "run python3 tools/bench.py --render"


@pytest.mark.parametrize("name", list(render.PARTS))
def test_parts_show_the_newest_results(name: str) -> None:
    fresh = with_part(ROOT / name, render.BEGIN, render.END, render.PARTS[name](ROOT))
    assert fresh == (ROOT / name).read_text(encoding="utf-8"), "run python3 tools/bench.py --render"


def test_committed_results_are_right() -> None:
    for path in (ROOT / render.FOLDER).glob("*.json"):
        result = results.load(path)
        assert path.name == result.file_name
        assert not result.faults, report.verdict(result)


def test_listing_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [row.name for row in ROWS]


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main.main([]) == 2
    assert "pip install torch" in capsys.readouterr().err
