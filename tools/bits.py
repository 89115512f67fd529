# SPDX-License-Identifier: Apache-2.0
"""Writes or checks pybaracuda/_check/bits.txt, hashes of every operator's outputs on fixed inputs.

    python3 tools/bits.py --check    compare every configuration of this machine with the committed file
    python3 tools/bits.py --write    write the file; refused unless every configuration agrees

A configuration is a backend, an instruction set, a thread count, a caller's float mode or a layout in memory
(pybaracuda/_check/runs.py). Run it with the Python of the private environment, after an install of the libraries.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# An installed pybaracuda comes before the source tree's.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import pybaracuda
from pybaracuda._check import children, runs, vectors
from pybaracuda._check.vectors import Hashes

ROOT = Path(__file__).resolve().parents[1]
# What is written is the source tree's, whatever package is checked.
VECTORS = ROOT / "pybaracuda" / "_check" / "bits.txt"


def measured() -> tuple[Hashes, list[str]]:
    """The hashes of the first configuration, and every sentence about another one that disagrees."""
    configurations = runs.cpu_configurations()
    if pybaracuda.backend_available("cuda"):
        configurations += runs.cuda_configurations()
    first: Hashes = {}
    problems: list[str] = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for configuration, found in zip(configurations, pool.map(children.run_in_child, configurations), strict=True):
            print(f"{configuration.name}: {len(found)} cases", flush=True)
            if not first:
                first = found
            against = f"{configuration.name} against {configurations[0].name}"
            problems += [f"{against}: {said}" for said in disagreements(found, first)]
    return first, problems


def disagreements(found: Hashes, first: Hashes) -> list[str]:
    return [
        f"{name}: {output} differs"
        for name in sorted(set(found) | set(first))
        for output in sorted(set(found.get(name, {})) | set(first.get(name, {})))
        if found.get(name, {}).get(output) != first.get(name, {}).get(output)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the file, if all configurations agree")
    action.add_argument("--check", action="store_true", help="compare with the file")
    options = parser.parse_args()
    hashes, problems = measured()
    if options.check:
        problems += vectors.differences(hashes, vectors.committed())
    if problems:
        print("\n".join(problems), file=sys.stderr)
        print(f"{len(problems)} disagreements" + ("; nothing was written" if options.write else ""), file=sys.stderr)
        return 1
    if options.write:
        text = vectors.document(hashes)
        changed = not VECTORS.exists() or VECTORS.read_text() != text
        VECTORS.write_text(text)
        print(f"{VECTORS.relative_to(ROOT)}: {len(hashes)} cases, {'written' if changed else 'unchanged'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
