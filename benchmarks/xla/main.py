# SPDX-License-Identifier: Apache-2.0
"""The options and the order of work of the benchmark of JAX programs; nothing is timed here."""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pybaracuda
from benchmarks.harness import origin
from benchmarks.harness.options import add_limit, add_output, add_rows, result_file
from benchmarks.harness.place import Place

from . import report
from .results import Result, RowResult, Way
from .rows import SIZES, rows_of

_START = Path(__file__).resolve().parents[1] / "jax_programs.py"
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
_LIMIT = 170.0
# Seconds without which no row begins, and how long one may take with XLA's deterministic scatter, which may be a loop.
_ROW_SECONDS, _LONGEST_ROW = 8.0, 15.0


class _Gpu(Place):
    """What a GPU's results say of where they come from."""

    backend = "cuda"
    flush = "none"

    @property
    def device(self) -> str:
        import jax

        return str(jax.devices()[0].device_kind)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/jax_programs.py",
        description="Time the operators inside JAX's programs, beside what XLA makes of the same. What XLA's scatter "
        f"costs when it is to be deterministic is measured in another process, whose XLA_FLAGS have {_DETERMINISTIC}.",
    )
    parser.add_argument("--cpu", action="store_true", help="on the CPU, also where JAX has a GPU")
    parser.add_argument("--host", action="store_true", help="only what a call costs the host")
    add_limit(parser, _LIMIT)
    add_output(parser, "--output")
    add_rows(parser)
    # The tests' problems, and what the process with other flags is started with: its rows' names.
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


class Bench:
    """One run of the benchmark."""

    def __init__(self, options: argparse.Namespace) -> None:
        import jax

        self._options = options
        self._started = time.monotonic()
        is_gpu = not options.cpu and jax.default_backend() == "gpu" and not pybaracuda.backend_problem("cuda")
        self._size = options.size or ("large" if is_gpu else "middle")
        self._is_gpu = is_gpu
        place = _Gpu() if is_gpu else Place()
        about = {**origin.describe(place, 7, {}, []), "xla_flags": os.environ.get("XLA_FLAGS", ""), "not_run": []}
        self.result = Result(about)
        self._file = result_file(options.output, self.result)

    def _save(self) -> None:
        if self._file is not None:
            self.result.save(self._file)

    def _left(self) -> float:
        return self._options.limit - (time.monotonic() - self._started)  # type: ignore[no-any-return]

    def _not_run(self, text: str) -> None:
        self.result.origin["not_run"].append(text)

    def host(self) -> None:
        """What calls cost the host, and, on a GPU, whether they wait and how many kernels they launch."""
        import numpy as np

        from . import measure

        rng = np.random.default_rng(0)
        self.result.from_python = measure.from_python(rng)
        self.result.in_executables = measure.in_executables(rng)
        if self._is_gpu:
            try:
                self.result.launches = measure.launches(rng)
            except Exception as error:  # a profiler is not everywhere
                self._not_run(f"launches: {type(error).__name__}: {str(error)[:200]}")
            self.result.waiting = measure.waiting(rng)
        self._save()

    def rows(self) -> None:
        """Every row, by ours and by XLA's way."""
        from .measure import measured

        for row in rows_of(self._size):
            if self._options.rows is not None and not self._options.rows.search(row.name):
                continue
            if self._left() < _ROW_SECONDS:
                self._not_run(f"{row.name}: no time left")
                continue
            found = RowResult(row.name, {who: Way(**measured(row, who)) for who in ("ours", "xla")})
            self.result.rows.append(found)
            self._save()
            print(f"  {row.name}: {found.ways}", file=sys.stderr, flush=True)

    def deterministic(self) -> None:
        """XLA's way to every row with its deterministic scatter, in a process that is started again when it is lost."""
        rows = {row.name: row for row in self.result.rows}
        names = list(rows)
        while names and self._left() > _ROW_SECONDS:
            flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), _DETERMINISTIC]))
            command = [sys.executable, str(_START), "--size", self._size, "--worker", json.dumps(names)]
            command += ["--cpu"] if self._options.cpu else []
            with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "XLA_FLAGS": flags}) as process:
                assert process.stdout is not None
                # Its first answer comes when JAX has started.
                seconds = 2 * _LONGEST_ROW
                while names:
                    ready, _, _ = select.select([process.stdout], [], [], min(seconds, max(self._left(), 0.0)))
                    line = process.stdout.readline() if ready else b""
                    if not line:
                        process.kill()
                        why = "its process ended" if ready else f"longer than {_LONGEST_ROW:.0f} s"
                        rows[names.pop(0)].ways["deterministic"] = Way(None, note=why)
                        break
                    seconds = _LONGEST_ROW
                    rows[names.pop(0)].ways["deterministic"] = Way(**json.loads(line))
                    self._save()
        for name in names:
            self._not_run(f"{name}, deterministic: no time left")

    def run(self) -> int:
        """Measure what was asked for; 0 if every promise was kept, or 1."""
        self.host()
        if not self._options.host:
            self.rows()
            if self._is_gpu or self._options.size:
                self.deterministic()
        self.result.origin["seconds"] = round(time.monotonic() - self._started, 1)
        self._save()
        print("\n\n".join([*report.sections(self.result), report.verdict(self.result)]))
        return 1 if self.result.faults else 0


def _work(size: str, names: list[str]) -> int:
    """What the process with other flags does: a line of JSON for each of these rows."""
    from .measure import measured

    rows = {row.name: row for row in rows_of(size)}
    for name in names:
        print(json.dumps(measured(rows[name], "xla")), flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 if every promise was kept, 1 if not, 2 if it could not start."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    if find_spec("jax") is None:
        print("This benchmark needs JAX: pip install 'pybaracuda[jax]'", file=sys.stderr)
        return 2
    # The second process needs memory, too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    if options.worker is not None:
        return _work(options.size, json.loads(options.worker))
    return Bench(options).run()
