# SPDX-License-Identifier: Apache-2.0
"""Writes the committed results of the benchmark of JAX programs into docs/jax.md; nothing is measured."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.harness.results import newest

from . import report, results

FOLDER = "benchmarks/results/jax"
PAGE = "docs/jax.md"
BEGIN, END = "<!-- jax-benchmark-begin -->", "<!-- jax-benchmark-end -->"
_NOTHING = "No measurement is committed yet."


def part(root: Path) -> str:
    """What stands between the page's markers: the newest result of every device, GPUs first."""
    found = [(path, results.load(path)) for path in newest(root / FOLDER)]
    found.sort(key=lambda each: (each[1].origin["backend"] != "cuda", each[1].device))
    parts = []
    for path, result in found:
        parts += [*report.sections(result), f"From [this file](../{FOLDER}/{path.name})."]
    return "\n\n".join(parts) if parts else _NOTHING


def with_part(text: str, part: str) -> str:
    """The page's text with what stands between the markers replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{part}\n{END}", text)


def render(root: Path) -> None:
    """Write the page's part, if there is the page."""
    path = root / PAGE
    if path.is_file():
        path.write_text(with_part(path.read_text(encoding="utf-8"), part(root)), encoding="utf-8")
