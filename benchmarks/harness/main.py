# SPDX-License-Identifier: Apache-2.0
"""The benchmark's options and order of work; no row is spelled out and nothing is timed here."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pybaracuda
from verify.progress import Progress

from . import contenders, host_cost, measure, origin, report, results
from .case import Row
from .contenders import RawLibrary
from .device import DevicePlace
from .draw import Draw
from .options import add_list, add_output, add_repeat, add_rows, add_update, new_file, result_file
from .place import Place
from .table import ROWS, WARM_UP

_GPU_REPEATS, _CPU_REPEATS = 31, 15


def _library(text: str) -> RawLibrary:
    name, separator, path = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"wanted NAME=path.so, got {text!r}")
    try:
        return RawLibrary(name, Path(path).absolute())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} does not load: {error}") from None


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py",
        description="Time and check every operator beside every peer that can be imported, in one run.",
    )
    parser.add_argument("--cpu", action="store_true", help="the CPU rows, also where there is a GPU")
    add_rows(parser)
    add_list(parser)
    add_repeat(parser, _GPU_REPEATS, _CPU_REPEATS)
    parser.add_argument(
        "--lib",
        type=_library,
        action="append",
        default=[],
        metavar="NAME=PATH.SO",
        help="another library with the same C ABI to run beside ours; may be repeated",
    )
    parser.add_argument("--no-peers", action="store_true", help="ours and a plain copy alone")
    add_output(parser, "--json")
    add_update(parser, "its other rows")
    parser.add_argument("--plot", type=new_file, metavar="FILE", help="draw the results")
    parser.add_argument(
        "--render",
        type=Path,
        metavar="FOLDER",
        help="measure nothing; write the tables and the picture of the results that are committed in this source tree",
    )
    # The tests' tiny problems.
    parser.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _chosen(options: argparse.Namespace, backend: str) -> list[Row]:
    rows = [row for row in ROWS if row.backend == backend]
    rows = [row for row in rows if options.rows is None or options.rows.search(row.name)]
    return [replace(row, case=row.case.small(), limits=()) for row in rows] if options.small else rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 if every result was right, 1 if not, 2 if it could not start."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    if options.render is not None:
        from .render import render

        render(options.render)
        return 0
    backend = "cpu" if options.cpu or pybaracuda.backend_problem("cuda") else "cuda"
    rows = _chosen(options, backend)
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    needed = ["tqdm", *(["matplotlib"] if options.plot else [])]
    if missing := [name for name in needed if find_spec(name) is None]:
        print(f"The benchmark needs {', '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    if not rows:
        print("No row's name matches; --list prints them.", file=sys.stderr)
        return 2
    if backend == "cpu" and not options.cpu:
        print(f"CPU rows, since no GPU can be used: {pybaracuda.backend_problem('cuda')}", file=sys.stderr)
    return run(options, rows, DevicePlace() if backend == "cuda" else Place())


def run(options: argparse.Namespace, rows: Sequence[Row], place: Place) -> int:
    """Measure the rows and report them."""
    started = time.perf_counter()
    found, missing = ([], {}) if options.no_peers else contenders.frameworks(place)
    repeat = options.repeat or (_GPU_REPEATS if place.backend == "cuda" else _CPU_REPEATS)
    about = origin.describe(place, repeat, missing, [f"{each.name}={each.path.name}" for each in options.lib])
    about |= {"copy_rate": place.copy_rate(), "floor_us": place.floor() * 1e6}
    result = results.Result(about)
    file = result_file(options.json, result)
    earlier = None if options.update is None else results.load(options.update)

    def save() -> None:
        if file is not None:
            result.save(file)
        if earlier is not None:
            results.updated(earlier, result).save(options.update)

    try:
        save()  # what cannot be written or updated is known before the first row is measured
    except ValueError as error:
        print(f"--update: {error}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        single = None
        if place.backend == "cpu":
            single = stack.enter_context(contenders.single_thread_library(place, WARM_UP))
        setting = measure.Setting(place, found, options.lib, about["copy_rate"], repeat, single)
        progress = stack.enter_context(Progress(len(rows) + 1, quiet=False))
        progress.say(report.origin(result))
        for row in rows:
            progress.stage(row.name)
            result.rows.append(measure.measure(row, setting, Draw()))
            progress.say(report.lines(result, result.rows[-1]))
            progress.step()
            save()
        progress.stage("host cost")
        for host in host_cost.measure(place, found):
            result.host.append(host)
            progress.say(report.host_line(host))
    about["clocks"] = origin.clocks(place)
    about["seconds"] = round(time.perf_counter() - started, 1)
    save()
    if options.plot is not None:
        from . import plot

        plot.draw(result, options.plot)
    print(f"{report.verdict(result)}; {about['seconds']:.0f} s")
    return 0 if all(row.right for row in result.rows) else 1
