# SPDX-License-Identifier: Apache-2.0
"""The options and the order of work of the benchmark through PyTorch; nothing is timed here."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pybaracuda
from benchmarks.harness import origin
from benchmarks.harness.device import DevicePlace
from benchmarks.harness.options import add_limit, add_list, add_output, add_repeat, add_rows, add_update, result_file
from benchmarks.harness.place import Place

from . import programs, report, results, training
from .results import Result
from .rows import ROWS, Row

_START = Path(__file__).resolve().parents[1] / "through_pytorch.py"
SECTIONS = ("host", "training", "programs", "rows", "compiled")
_GPU_REPEATS, _CPU_REPEATS = 21, 5
_LIMIT = 360.0
# Seconds without which no row and no program begins.
_ROW_SECONDS, _PROGRAM_SECONDS = 5.0, 20.0
# How long a worker may take to end.
_END_SECONDS = 10.0


class LostError(Exception):
    """A worker that ended or did not answer in time."""


class WorkerProcess:
    """A worker in a process of its own, started when it is first asked; one that is lost is started again."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._work = work
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_END_SECONDS)

    def _end(self, seconds: float) -> None:
        """End the process, which has so long to end by itself."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._process = None

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            command = [sys.executable, str(_START), "--worker", json.dumps(self._work)]
            # What cuBLAS is asked for with the flag, and here without it, too.
            environ = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ}
            # With --cpu every row shows our kernels, also where an installation leaves the call to PyTorch's.
            environ["PYBARACUDA_TORCH_CPU"] = "always"
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def ask(self, task: dict[str, str], seconds: float) -> Any:
        """Answer what the worker answers; LostError if it does not within this time."""
        questions, answers = self._pipes()
        try:
            questions.write(json.dumps(task).encode() + b"\n")
            questions.flush()
            ready, _, _ = select.select([answers], [], [], seconds)
        except BrokenPipeError:
            ready = [answers]
        line = answers.readline() if ready else b""
        if not line:
            self._end(0)
            raise LostError("its process ended" if ready else f"not done within {seconds:.0f} s")
        return json.loads(line)


def _sections(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := sorted(set(chosen) - set(SECTIONS)):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; wanted some of {', '.join(SECTIONS)}")
    return [name for name in SECTIONS if name in chosen]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/through_pytorch.py",
        description="Time PyTorch's operators as they are and on pybaracuda's kernels, through PyTorch.",
    )
    parser.add_argument(
        "--sections",
        type=_sections,
        default=list(SECTIONS),
        metavar="NAME,NAME",
        help=f"some of {', '.join(SECTIONS)} (default: all, in this order)",
    )
    parser.add_argument("--cpu", action="store_true", help="on the CPU, also where there is a GPU")
    add_rows(parser)
    add_list(parser)
    add_repeat(parser, _GPU_REPEATS, _CPU_REPEATS)
    parser.add_argument("--runs", type=int, default=2, help="processes of each training and program (default: 2)")
    parser.add_argument(
        "--training-sizes", default="", metavar="OPTIONS", help="options of mask_rcnn.py, such as '--steps 8'"
    )
    add_limit(parser, _LIMIT)
    add_output(parser, "--output")
    add_update(parser, "the rest")
    parser.add_argument(
        "--profile", type=Path, metavar="FOLDER", help="profile the training's plain run and ours into text files here"
    )
    # The tests' tiny problems, and what a process of this program is started with.
    parser.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
    return options


class Bench:
    """One run of the benchmark."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._deadline = time.monotonic() + options.limit
        is_cpu = options.cpu or bool(pybaracuda.backend_problem("cuda"))
        self._device = "cpu" if is_cpu else "cuda"
        self._place = Place() if is_cpu else DevicePlace()
        repeat = options.repeat or (_CPU_REPEATS if is_cpu else _GPU_REPEATS)
        self.result = Result(
            {
                **origin.describe(self._place, repeat, {}, []),
                "sections": options.sections,
                "limit": options.limit,
                "not_run": [],
            }
        )
        work = {"device": self._device, "repeat": repeat, "seed": secrets.randbits(31), "small": options.small}
        self._workers = {role: WorkerProcess({"role": role, **work}) for role in ("pytorch", "ours", "python")}
        self._earlier = None if options.update is None else results.load(options.update)
        self._file = result_file(options.output, self.result)
        self._save()

    def _save(self) -> None:
        if self._file is not None:
            self.result.save(self._file)
        if self._earlier is not None:
            results.updated(self._earlier, self.result).save(self._options.update)

    def _left(self) -> float:
        return float(self._deadline - time.monotonic())

    def _chosen(self) -> list[Row]:
        """The rows whose operators are there."""
        options = self._options
        rows = [row for row in ROWS if options.rows is None or options.rows.search(row.name)]
        return [row for row in rows if not row.needs or self._has(row.needs)]

    def _has(self, module: str) -> bool:
        if find_spec(module) is None:
            self._not_run(f"{module} is not installed")
            return False
        return True

    def _not_run(self, text: str) -> None:
        if text not in self.result.origin["not_run"]:
            self.result.origin["not_run"].append(text)

    def _ask(self, section: str, row: Row, role: str) -> Any:
        """What a worker answers; None and a note if it is lost."""
        try:
            return self._workers[role].ask({"section": section, "row": row.name}, max(self._left(), 1.0))
        except LostError as problem:
            self._not_run(f"{section}, {row.name}, {role}: {problem}")
            return None

    def host(self) -> None:
        """The host's costs."""
        from .worker import has_native_route

        roles = ("pytorch", "ours", "python") if has_native_route() else ("pytorch", "ours")
        for row in self._chosen():
            if not row.host or not self._begins("host", row.name, _ROW_SECONDS):
                continue
            whole = results.HostResult(row.host)
            for role in roles:
                answer = self._ask("host", row, role)
                if answer is not None:
                    found = results.host_of(answer)
                    for name in ("forward", "both", "notes"):
                        getattr(whole, name).update(getattr(found, name))
            self.result.host.append(whole)
            print(report.host_line(whole), flush=True)
            self._save()

    def rows(self, section: str) -> None:
        """Rows in eager or compiled programs, each in PyTorch's process and in ours, one after the other."""
        for row in self._chosen():
            if section == "compiled" and not row.compiled:
                continue
            if not self._begins(section, row.name, _ROW_SECONDS):
                continue
            runs: dict[str, results.Run] = {}
            for role in ("pytorch", "ours"):
                answer = self._ask(section, row, role) or {}
                runs |= {name: results.run_of(run) for name, run in answer.items()}
            self.result.row(row.name).runs.update(runs)
            print(report.row_lines(self.result.row(row.name), list(runs)), flush=True)
            self._save()

    def _begins(self, section: str, name: str, seconds: float) -> bool:
        """Whether there is time for one more."""
        if self._left() > seconds:
            return True
        self._not_run(f"{section}, {name}: no time left")
        return False

    def train(self) -> None:
        """The training program's variants in turns, each in fresh processes."""
        sizes = [*self._options.training_sizes.split(), "--device", self._device]
        # Once is enough to see what the flag costs, which takes a minute: last, where the time may end.
        in_turns = [each for each in training.VARIANTS if each.name != "flag"]
        runs = [(number, each) for number in range(self._options.runs) for each in in_turns]
        runs += [(0, each) for each in training.VARIANTS if each.name == "flag"]
        for number, variant in runs:
            if self._begins("training", f"{variant.name}, run {number + 1}", _PROGRAM_SECONDS):
                self.result.training.append(training.run(variant, sizes, self._left()))
                print(report.training_line(self.result.training[-1]), flush=True)
                self._save()

    def run_programs(self) -> None:
        """The small programs, each in turn in every way."""
        for name in programs.NAMES:
            if not programs.is_there(name):
                self._not_run(f"programs, {name}: what it needs is not installed")
            elif self._begins("programs", name, _PROGRAM_SECONDS):
                self.result.programs.append(programs.run(name, self._device, self._options.runs))
                print(report.program_line(self.result.programs[-1]), flush=True)
                self._save()

    def profile(self, folder: Path) -> None:
        """Profiles of the training program."""
        sizes = [*self._options.training_sizes.split(), "--device", self._device]
        for variant in training.VARIANTS:
            if variant.name != "flag" and self._begins("profile", variant.name, _PROGRAM_SECONDS):
                path = folder / f"profile-{variant.name}.txt"
                found = training.run(variant, sizes, self._left(), path)
                head = found.note or path.read_text(encoding="utf-8").partition("\n---")[0]
                print(f"profile, {variant.name}: {head}", flush=True)

    def run(self) -> int:
        """Measure what was asked for; 0 if everything was right, or 1."""
        started = time.monotonic()
        print(report.origin(self.result), flush=True)
        for section in self._options.sections:
            if section == "host":
                self.host()
            elif section == "programs":
                self.run_programs()
            elif section != "training":
                self.rows(section)
            elif self._has("torchvision"):
                self.train()
        if self._options.profile is not None and self._has("torchvision"):
            self.profile(self._options.profile)
        self.result.origin["clocks"] = origin.clocks(self._place)
        self.result.origin["seconds"] = round(time.monotonic() - started, 1)
        self._save()
        for worker in self._workers.values():
            worker.__exit__(None, None, None)
        print(report.verdict(self.result))
        return 1 if self.result.faults else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 if every result was right, 1 if not, 2 if it could not start."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    if options.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    if find_spec("torch") is None:
        print("This benchmark needs torch: pip install torch torchvision", file=sys.stderr)
        return 2
    if options.worker is not None:
        from .worker import main as work

        return work(options.worker)
    try:
        bench = Bench(options)
    except ValueError as error:
        print(f"--update: {error}", file=sys.stderr)
        return 2
    return bench.run()
