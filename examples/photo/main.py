# SPDX-License-Identifier: Apache-2.0
"""Runs the demo's jobs in order, prints times and checks, writes picture and table; no job is spelled out here."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pybaracuda
from verify.progress import Progress

from . import padding, photo, picture, region_pooling, registration, report, roi_attention, scale_fit
from .measure import Row, measure
from .memory import NoDeviceError, choose

# No module of the demo imports these on its own import.
_NEEDED = ("matplotlib", "PIL", "tqdm")
_PACKAGES = {"PIL": "pillow"}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="examples/photo/run.py",
        description="Register a photo, look through boxes, pool over regions, fit int8 scales, pad: each by gradient.",
    )
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the picture, .png or .jpg (%(default)s)")
    parser.add_argument(
        "--width", type=int, default=2090, metavar="PIXELS", help="how wide the picture is (%(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="print a line for every operator and dtype")
    parser.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto", help="(%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="print what fails and the last line only")
    # The tests' smaller photo.
    parser.add_argument("--size", type=int, default=600, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.table = options.output.with_suffix(".txt")
    if not options.output.absolute().parent.is_dir():
        parser.error(f"--output: the folder {options.output.parent} does not exist")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status is 0 if every check passed, 1 if not, 2 if it could not start."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        packages = [_PACKAGES.get(name, name) for name in missing]
        print(f"The demo needs {', '.join(missing)}: pip install {' '.join(packages)}", file=sys.stderr)
        return 2
    try:
        return _run(options)
    except NoDeviceError as error:
        print(f"The demo cannot run: {error}", file=sys.stderr)
        return 2
    except pybaracuda.BaracudaError as error:
        print(f"The demo failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    memory = choose(options.backend)
    image = photo.load(options.size)
    _, height, width = image.shape
    where = f"{memory.backend} backend, {memory.source} arrays"
    title = f"pybaracuda {pybaracuda.__version__}, {where}, photo of {width} x {height} pixels"
    if not options.quiet:
        print(title, flush=True)

    with Progress(registration.stage_count(image) + scale_fit.STEPS, options.quiet) as progress:
        progress.stage("registering the copy")
        registered = registration.run(image, memory, progress.step)
        progress.stage("looking through boxes")
        attention = roi_attention.run(image, memory)
        progress.stage("pooling over regions")
        regions = region_pooling.run(image, memory)
        progress.stage("fitting int8 scales")
        fit = scale_fit.run(image, memory, progress.step)
        progress.stage("padding")
        padded = padding.run(image, memory)

        cases = {
            dtype: [
                *roi_attention.cases(attention, image, dtype),
                *registration.cases(registered, image, dtype),
                *region_pooling.cases(regions, dtype),
                *scale_fit.cases(fit, dtype),
                *padding.cases(padded, image, dtype),
            ]
            for dtype in memory.dtypes
        }
        progress.expect(sum(map(len, cases.values())))
        rows: list[Row] = []
        copies: dict[int, float] = {}
        for dtype, of_dtype in cases.items():
            progress.stage(f"checking and timing {dtype}")
            for case in of_dtype:
                rows.append(measure(case, memory, copies))
                progress.step()
        progress.stage("drawing")
        picture.draw(options.output, options.width, where, image, registered, attention, regions, fit, padded)

    order = list(dict.fromkeys(row.operator for row in rows))
    rows.sort(key=lambda row: order.index(row.operator))
    checks = [check for job in (registered, attention, regions, fit, padded) for check in job.checks()]
    failed = sum(not row.verdict.kept for row in rows) + sum(not check.kept for check in checks)
    whole = "\n".join([report.table(rows), report.legend(memory)])
    options.table.write_text("\n".join([title, whole, "", *map(str, checks)]) + "\n", encoding="utf-8")
    if options.all:
        print(whole)
    elif not options.quiet:
        print("\n".join([report.summary(rows), report.summary_legend(memory, rows[0].dtype)]))
    elif wrong := [row for row in rows if not row.verdict.kept]:
        print(report.table(wrong))
    shown = [check for check in checks if not (check.kept and options.quiet)]
    if shown:
        print("\n".join(["", *map(str, shown)]))
    if failed:
        print(
            f"FAILED: {failed} of {len(rows) + len(checks)} checks; see the lines marked FAIL, in {options.table} too"
        )
        return 1
    seconds = time.perf_counter() - started
    print(
        f"All {len(rows) + len(checks)} checks passed in {seconds:.0f} s; the picture is {options.output}, every time "
        f"and error is in {options.table}"
    )
    return 0
