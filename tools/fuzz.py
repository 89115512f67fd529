# SPDX-License-Identifier: Apache-2.0
"""Calls every C symbol with valid and hostile arguments, for as long as it is let, and judges all that can be seen.

    python3 tools/fuzz.py --seconds 60                  the installed CPU library, with a seed that is printed
    python3 tools/fuzz.py --backend cuda --seconds 120  the CUDA library; results must be the CPU library's
    python3 tools/fuzz.py --reproduce SEED:CALL         one call of an earlier run, alone

A call is an operator's arguments as one program might pass them: sizes, strides, pointers, data, scratch, a stream. It
goes through can_implement, workspace_size, run and run_packed, and where it succeeds through another library too: the
same one with another instruction set, or the other backend's. Operands stand at guard pages (on CUDA between canaries).
The status and the words must be those of the contract (tools/fuzzing/model.py), what fails must touch nothing, what
succeeds must write every element and nothing else, with the same bits everywhere. Calls run in processes of their own,
so that a crash or a hang is a finding like others. The exit status is 1 if there is a finding.

Run it with a Python that has NumPy, such as that of the private environment, after an install of the libraries.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# An installed pybaracuda comes before the source tree's.
sys.path.append(str(ROOT))

from tools.fuzzing import processes, worker  # noqa: E402


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--lib", type=Path, metavar="PATH", help="the library (default: the installed one)")
    found.add_argument("--backend", choices=["cpu", "cuda"], default="cpu", help="which installed one (default: cpu)")
    found.add_argument(
        "--against", default="", metavar="WHAT",
        help="what results are compared with: portable, avx2, avx512 (the same CPU library with that instruction "
        "set), a library's path, or nothing. Default: portable and avx2 by turns; for CUDA the installed CPU library",
    )  # fmt: skip
    found.add_argument("--calls", type=int, metavar="N", help="stop after so many calls")
    found.add_argument("--seconds", type=float, metavar="S", help="stop after so long (default: 60, without --calls)")
    found.add_argument("--seed", type=int, help="default: a fresh one")
    found.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first call (default: 0)")
    found.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at once (default: 1)")
    found.add_argument("--only", default="", metavar="REGEX", help="symbols whose name holds this")
    found.add_argument("--findings", type=int, default=20, metavar="N", help="stop after so many (default: 20)")
    found.add_argument("--hang", type=float, default=120, metavar="S", help="how long a call may take (default: 120)")
    found.add_argument("--reproduce", metavar="SEED:CALL", help="make one call alone and say what it is")
    found.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)  # this program starts itself
    return found


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.reproduce:
        seed, _, number = options.reproduce.partition(":")
        options.seed, options.first, options.calls, options.jobs = int(seed), int(number), 1, 1
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    if options.seconds is None and options.calls is None:
        options.seconds = 60.0
    if options.worker:
        return worker.main(options)
    return processes.main(options, Path(__file__))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
