# SPDX-License-Identifier: Apache-2.0
"""The demo's tables as text, whole and with a line per operator; nothing is measured or judged here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from .measure import RUNS, Row
from .memory import Memory

# Headings and alignments of the whole table.
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
# And of the one with a line per operator.
_FEW_COLUMNS = (
    ("operator", "<"),
    ("dtypes", "<"),
    ("worst error, of its bound", ">"),
    ("same bits", "<"),
    ("time", ">"),
    ("a copy takes", ">"),
)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def _bound(rows: Sequence[Row]) -> str:
    """The largest share of its bound that an error takes."""
    worst = max(rows, key=lambda row: row.verdict.of_bound).verdict
    exact = all(row.verdict.exact for row in rows) and worst.of_bound <= 1
    return "exact" if exact else _percent(worst.of_bound)


def _bits(rows: Sequence[Row]) -> str:
    same, kept = (all(test) for test in zip(*((row.verdict.same_bits, row.verdict.kept) for row in rows), strict=True))
    return ("yes" if same else "NO") + ("" if kept else "  <- FAIL")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.operator,
        row.dtype,
        row.backend,
        row.shape,
        f"{row.verdict.error:.1e}" if row.verdict.error else "0",
        _bound([row]),
        _duration(row.seconds),
        f"{row.bytes_per_second / 1e9:.1f}",
        _percent(row.copy_share),
        _bits([row]),
    )


def _few_cells(rows: Sequence[Row]) -> tuple[str, ...]:
    first = rows[0]
    return (
        first.operator,
        " ".join(row.dtype for row in rows),
        _bound(rows),
        _bits(rows),
        _duration(first.seconds),
        _duration(first.seconds * first.copy_share),
    )


def _aligned(columns: Sequence[tuple[str, str]], lines: Sequence[Sequence[str]]) -> str:
    """The lines under their headings, a rule before the first and behind the last."""
    headings = [heading for heading, _ in columns]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]

    def line(cells: Iterable[str]) -> str:
        aligned = zip(cells, widths, columns, strict=True)
        return "  ".join(f"{cell:{side}{width}}" for cell, width, (_, side) in aligned).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(headings), rule, *map(line, lines), rule])


def table(rows: Sequence[Row]) -> str:
    """Every row, those of an operator below each other under its name."""
    lines, previous = [], None
    for row in rows:
        cells = _cells(row)
        lines.append(("", *cells[1:]) if row.operator == previous else cells)
        previous = row.operator
    return _aligned(_COLUMNS, lines)


def summary(rows: Sequence[Row]) -> str:
    """One line for each operator, whose rows follow each other."""
    return _aligned(_FEW_COLUMNS, [_few_cells(list(group)) for _, group in groupby(rows, lambda row: row.operator)])


def _same_bits(memory: Memory) -> str:
    also = " and from the CPU library" if memory.backend != "cpu" else ""
    return f"Same bits: {RUNS} runs into poisoned memory{also} hash alike."


def _larger(memory: Memory) -> str:
    return f"Timed with {memory.repeats} times the photo, to keep the GPU busy. " if memory.repeats > 1 else ""


def summary_legend(memory: Memory, dtype: str) -> str:
    """What the columns of the short table mean; its times are those of `dtype`."""
    text = (
        f"{_larger(memory)}Worst error: against float64 definitions, as a share of the most that rounding can be off "
        f"by, over all dtypes. {_same_bits(memory)} Time: of {dtype}; a copy: of as many bytes as must be read and "
        "written at least, timed in this run."
    )
    return textwrap.fill(text, 120)


def legend(memory: Memory) -> str:
    """What the columns of the whole table mean."""
    text = (
        f"{_larger(memory)}Largest error: against a float64 definition; of bound: its share of the most that rounding "
        "can be off by. GB/s: bytes that must be read and written at least, over the time; of copy: the time of a "
        f"plain copy that moves as many bytes, taken in this run, over the time. {_same_bits(memory)}"
    )
    return textwrap.fill(text, 120)
