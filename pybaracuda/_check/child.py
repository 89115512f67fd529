# SPDX-License-Identifier: Apache-2.0
"""What one process of a check does: every case under one configuration, a line each as soon as it is done.

A process of its own, because an instruction set and a thread count are chosen once a process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial

from .. import _machine
from . import cases
from .abi_calls import Library
from .memory import DeviceBlock, DeviceRegions, HostRegions
from .runs import Bench, Configuration, layout_of, outputs
from .vectors import hashed, line

# (case, library, layout) -> the case in memory
LayOut = Callable[[cases.Case, Library, str], Bench]


def in_plain_memory(backend: str) -> LayOut:
    """Answer what lays a case out in memory without canaries."""
    regions = partial(DeviceRegions, DeviceBlock()) if backend == "cuda" else HostRegions

    def lay_out(case: cases.Case, library: Library, layout: str) -> Bench:
        needs = layout_of(case, library, layout)
        return Bench(case, library, regions(needs.sizes, needs.offsets), needs.workspace_bytes)

    return lay_out


def _run(configuration: Configuration, memory: Callable[[str], LayOut], chosen: Iterable[cases.Case]) -> None:
    library = Library(configuration.backend)
    lay_out = memory(configuration.backend)
    for case in chosen:
        found = hashed(outputs(lay_out(case, library, configuration.layout), configuration))
        print(line(case.name, found), flush=True)


def main(memory: Callable[[str], LayOut] = in_plain_memory) -> int:
    """Run the configuration that the command line names; the environment must already be its."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=["cpu", "cuda"])
    parser.add_argument("--caller", choices=["plain", "ftz"], default="plain")
    parser.add_argument("--layout", choices=["tight", "loose"], default="tight")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    options = parser.parse_args()
    chosen = cases.sample() if options.quick else cases.cases(options.first, options.step)
    configuration = Configuration(
        "this", options.backend, "", caller=options.caller, layout=options.layout, device=options.device
    )
    if options.backend == "cpu":
        _run(configuration, memory, chosen)
    elif problem := _machine.cuda_problem():
        raise RuntimeError(problem)
    else:
        with _machine.on_device(options.device):
            _run(configuration, memory, chosen)
    return 0
