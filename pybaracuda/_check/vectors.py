# SPDX-License-Identifier: Apache-2.0
"""The committed bits, as bits.txt beside this module has them, and what differs from them.

A line is a case: its name, then "output:hash" for each output. Lines that begin with # are comments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

VECTORS = Path(__file__).with_name("bits.txt")

# Case -> output -> the beginning of the SHA-256 of its elements in row-major order, little-endian.
Hashes = dict[str, dict[str, str]]

# 64 bits: other bits that look the same are one in 2^64, and the file is a quarter as large in a wheel.
DIGITS = 16


def hashed(results: Mapping[str, bytes]) -> dict[str, str]:
    """The hash of every output's bytes."""
    return {name: hashlib.sha256(content).hexdigest()[:DIGITS] for name, content in results.items()}


def line(case: str, hashes: Mapping[str, str]) -> str:
    """A case as the file has it, without the newline."""
    return " ".join([case, *(f"{output}:{found}" for output, found in hashes.items())])


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """The case and the hashes of a line."""
    name, *outputs = text.split()
    return name, {output: found for output, _, found in (part.partition(":") for part in outputs)}


def document(hashes: Hashes) -> str:
    """The whole file."""
    head = [
        "# Every output of the fixed cases in cases.py: the first 64 bits of the SHA-256 of its elements, row-major",
        "# and little-endian. Written by tools/bits.py --write.",
    ]
    return "\n".join([*head, *(line(case, found) for case, found in hashes.items())]) + "\n"


def committed() -> Hashes:
    """Read the committed file."""
    lines = VECTORS.read_text(encoding="ascii").splitlines()
    return dict(parsed(each) for each in lines if each and not each.startswith("#"))


def differences(found: Hashes, expected: Hashes) -> list[str]:
    """A sentence for every case that is missing, left over or has other bits."""
    said = [f"{name}: not among the committed cases" for name in found if name not in expected]
    said += [f"{name}: committed, but no longer a case" for name in expected if name not in found]
    for name in found:
        for output in sorted(found[name]) if name in expected else []:
            wanted = expected[name].get(output, "nothing")
            if found[name][output] != wanted:
                said.append(f"{name}: {output} is {found[name][output]}, committed {wanted}")
    return said
