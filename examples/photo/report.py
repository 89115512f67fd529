# SPDX-License-Identifier: Apache-2.0
"""The demo's table as text; nothing is measured or judged here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .measure import RUNS, Row
from .memory import Memory

# Heading and alignment of every column.
_COLUMNS = (
    ("operator", "<"),
    ("dtype", "<"),
    ("backend", "<"),
    ("shape", "<"),
    ("largest error", ">"),
    ("of bound", ">"),
    ("time", ">"),
    ("GB/s", ">"),
    ("of copy", ">"),
    ("same bits", "<"),
)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = row.verdict
    return (
        row.operator,
        row.dtype,
        row.backend,
        row.shape,
        f"{verdict.error:.1e}" if verdict.error else "0",
        "exact" if verdict.exact and verdict.of_bound <= 1 else _percent(verdict.of_bound),
        _duration(row.seconds),
        f"{row.bytes_per_second / 1e9:.1f}",
        _percent(row.copy_share),
        ("yes" if verdict.same_bits else "NO") + ("" if verdict.kept else "  <- FAIL"),
    )


def table(rows: Sequence[Row]) -> str:
    """Every row under a heading, one block per operator."""
    lines = [_cells(row) for row in rows]
    headings = [heading for heading, _ in _COLUMNS]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]

    def line(cells: Iterable[str]) -> str:
        aligned = zip(cells, widths, _COLUMNS, strict=True)
        return "  ".join(f"{cell:{side}{width}}" for cell, width, (_, side) in aligned).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    text = [line(headings), rule]
    previous = None
    for row, cells in zip(rows, lines, strict=True):
        repeated = row.operator == previous
        text.append(line(("", *cells[1:]) if repeated else cells))
        previous = row.operator
    return "\n".join([*text, rule])


def legend(memory: Memory) -> str:
    """What the columns mean."""
    also = " and from the CPU library" if memory.backend != "cpu" else ""
    larger = f"Timed with {memory.repeats} times the photo, to keep the GPU busy. " if memory.repeats > 1 else ""
    text = (
        f"{larger}Largest error: against a float64 definition; of bound: its share of the most that rounding can be "
        "off by. GB/s: bytes that must be read and written at least, over the time; of copy: the time of a plain copy "
        f"that moves as many bytes, taken in this run, over the time. Same bits: {RUNS} runs into poisoned "
        f"memory{also} hash alike."
    )
    return textwrap.fill(text, 120)
