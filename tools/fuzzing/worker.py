# SPDX-License-Identifier: Apache-2.0
"""The process that makes the calls. It says in shared memory which call it is at, and on standard output what it found.

A line of its output is a JSON object: a finding, or the counts at the end.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pybaracuda
from tools.fuzzing import abi, call, draw, execute

# What the process says of itself: the number of the call it is at, calls made, C functions called, results compared.
STATE = struct.Struct("=qqqq")
ISAS = ("portable", "avx2", "avx512")


def main(options: argparse.Namespace) -> int:
    path = options.lib or Path(pybaracuda.library_path(options.backend))
    with open(options.worker, "r+b") as file:
        state = mmap.mmap(file.fileno(), STATE.size)
    executor = executor_for(path, options.against, options.seed)
    counts = fuzz(executor, options, state)
    say({"counts": counts})
    return 0


def executor_for(path: Path, against: str, seed: int) -> execute.Executor:
    """The library, and what it is compared with."""
    library = abi.Library(path)
    side = execute.side_of(library)
    if not against:
        against = ISAS[seed % 2] if library.backend == "cpu" else str(pybaracuda.library_path("cpu"))
    if against == "nothing":
        return execute.Executor(side, None)
    if against in ISAS:
        # Another number of threads than the machine has, too.
        other = abi.second_library(path, against, 3)
    else:
        other = abi.Library(Path(against))
    # Two libraries of one backend take turns with the same memory.
    return execute.Executor(
        side, side._replace(library=other) if other.backend == library.backend else execute.side_of(other)
    )


def fuzz(executor: execute.Executor, options: argparse.Namespace, state: Any) -> dict[str, Any]:
    """Make calls until the number or the time is reached."""
    stop = None if options.calls is None else options.first + options.calls * options.jobs
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    chosen = {s.name for s in abi.symbols() if re.search(options.only, s.name)}
    statuses: Counter[int] = Counter()
    of_symbol: Counter[str] = Counter()
    made = entered = compared = 0
    parent = os.getppid()  # without which nobody wants to know
    seed, streams, number = options.seed, executor.streams, options.first
    while stop is None or number < stop:
        if draw.symbol_of(number).name in chosen:
            STATE.pack_into(state, 0, number, made, entered, compared)
            drawn = draw.call_of(seed, number, streams)
            outcome = executor.run(drawn.call, drawn.judged)
            made += 1
            entered += outcome.entered
            compared += outcome.compared
            statuses[outcome.status] += 1
            of_symbol[drawn.call.symbol] += 1
            if outcome.findings or options.reproduce:
                found = [finding.what for finding in outcome.findings]
                say({"number": number, "call": call.to_json(drawn.call), "findings": found, "status": outcome.status})
            if made % 64 == 0 and (os.getppid() != parent or (deadline is not None and time.monotonic() > deadline)):
                break
        number += options.jobs
        if deadline is not None and not chosen:
            break
    STATE.pack_into(state, 0, -1, made, entered, compared)
    return {"calls": made, "entered": entered, "compared": compared, "statuses": statuses, "symbols": of_symbol}


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
