# SPDX-License-Identifier: Apache-2.0
"""Runs the fixed cases and the bad data with every tensor in an allocation of its own, for tools that watch accesses.

    compute-sanitizer --error-exitcode 1 python3 tests/sanitizer_run.py

The tool sees what canaries cannot: reads past an end. Results are checked all the same, so that a run which did not
do its work does not pass.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

# At the end: an installed pybaracuda comes before the source tree's.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import bad_data
from canaries import CanaryBench

from pybaracuda._check.abi_calls import Library, symbols
from pybaracuda._check.cases import Case, cases_of
from pybaracuda._check.runs import layout_of
from pybaracuda._check.vectors import committed, hashed
from verify.memory.arena import FILLS, Apart


def chosen(symbol_pattern: str) -> Iterator[Case]:
    """The bad data and the fixed cases of the symbols that match."""
    for symbol in symbols():
        if re.fullmatch(symbol_pattern, symbol.name):
            yield from (bad_data.case(symbol, mix, size) for mix in bad_data.MIXES for size in bad_data.SIZES)
            yield from cases_of(symbol)


def results(case: Case, library: Library, fill_workspace: bool) -> dict[str, bytes]:
    needs = layout_of(case, library)
    apart = Apart(library.backend, needs.sizes)
    bench = CanaryBench(case, library, apart, needs.workspace_bytes)
    bench.write(FILLS[0], fill_workspace=fill_workspace)
    bench.run()
    found = bench.results()
    apart.free()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--symbols", default=".*", metavar="REGEX", help="which symbols, such as 'pad_.*_f32'")
    parser.add_argument("--fresh-workspace", action="store_true", help="leave scratch unwritten, for initcheck")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of the cases, counted from 1")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    library, on_host = Library(options.backend), Library("cpu")
    expected_hashes = committed()
    wrong, count = [], 0
    for case in islice(chosen(options.symbols), part - 1, None, parts):
        found = hashed(results(case, library, not options.fresh_workspace))
        expected = expected_hashes[case.name] if case.name in expected_hashes else hashed(results(case, on_host, True))
        wrong += [case.name] if found != expected else []
        count += 1
    print(f"{count} cases on {options.backend}, {len(wrong)} with other bits than expected {' '.join(wrong)}")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    raise SystemExit(main())
