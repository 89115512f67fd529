# SPDX-License-Identifier: Apache-2.0
"""Writes the committed results of the benchmark of JAX programs into docs/jax.md; nothing is measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.page import NOTHING, with_part
from benchmarks.harness.results import committed

from . import report, results

FOLDER = "benchmarks/results/jax"
PAGE = "docs/jax.md"
BEGIN, END = "<!-- jax-benchmark-begin -->", "<!-- jax-benchmark-end -->"


def part(root: Path) -> str:
    """What stands between the page's markers: the newest result of every device, GPUs first."""
    parts = []
    for path, result in committed(root / FOLDER, results.load):
        parts += [*report.sections(result), f"From [this file](../{FOLDER}/{path.name})."]
    return "\n\n".join(parts) if parts else NOTHING


def render(root: Path) -> None:
    """Write the page's part, if there is the page."""
    path = root / PAGE
    if path.is_file():
        path.write_text(with_part(path, BEGIN, END, part(root)), encoding="utf-8")
