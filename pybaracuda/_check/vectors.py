# SPDX-License-Identifier: Apache-2.0
"""The committed bits, as the file beside this module has them, and what differs from them."""

from __future__ import annotations

import json
from pathlib import Path

VECTORS = Path(__file__).with_name("bits.json")

# Case -> output -> SHA-256 of its elements in row-major order, little-endian.
Hashes = dict[str, dict[str, str]]


def committed() -> Hashes:
    """Read the committed file."""
    entries = json.loads(VECTORS.read_text())["cases"]
    return {entry["case"]: entry["sha256"] for entry in entries}


def differences(found: Hashes, expected: Hashes) -> list[str]:
    """A sentence for every case that is missing, left over or has other bits."""
    said = [f"{name}: not among the committed cases" for name in found if name not in expected]
    said += [f"{name}: committed, but no longer a case" for name in expected if name not in found]
    for name in found:
        for output in sorted(found[name]) if name in expected else []:
            wanted = expected[name].get(output, "nothing")
            if found[name][output] != wanted:
                said.append(f"{name}: {output} is {found[name][output][:12]}, committed {wanted[:12]}")
    return said
