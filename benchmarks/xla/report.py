# SPDX-License-Identifier: Apache-2.0
"""Tables of a result of the benchmark of JAX programs; nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.report import machine, paragraph, versions

from .measure import LOOP_LENGTH
from .results import Result, RowResult, Way

_WAYS = ("ours", "xla", "deterministic")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, [":---" if number == 0 else "---:" for number in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _us(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def host_table(result: Result) -> str:
    """What a tiny call costs from Python, and an operator among others in one executable."""
    rows = [(name, _us(us)) for name, us in result.from_python.items()]
    rows += [
        (f"{name}, one of {LOOP_LENGTH:,} in an executable", _us(us)) for name, us in result.in_executables.items()
    ]
    return _table(("tiny arrays, 4 x 4", "us"), rows)


def _cells(way: Way | None, ratio: float | None) -> list[str]:
    if way is None:
        return ["", "", ""]
    bits = "" if way.same_bits is None else "same" if way.same_bits else "differ"
    return [_us(way.us) or way.note, f"{ratio:.2f} x" if ratio else "", bits]


def rows_table(result: Result) -> str:
    """Every row; without the deterministic way where it was not measured."""
    ways = [who for who in _WAYS[1:] if any(who in row.ways for row in result.rows)]
    head = ["us of a program", "ours", "our bits"]
    for who in ways:
        title = "XLA" if who == "xla" else "XLA, deterministic"
        head += [title, "ratio", "bits"]

    def line(row: RowResult) -> list[str]:
        ours = _cells(row.ways.get("ours"), None)
        return [
            row.name,
            f"**{ours[0]}**",
            ours[2],
            *(c for who in ways for c in _cells(row.ways.get(who), row.ratio(who))),
        ]

    return _table(head, [line(row) for row in result.rows])


def facts(result: Result) -> str:
    """Launches and waiting in words; empty where there are none."""
    sentences = [
        f"{name}: {counts['in a program']:g} kernels in a program, {counts['by the array function']:g} by the array "
        "function."
        for name, counts in result.launches.items()
        if None not in counts.values()
    ]
    if result.waiting:
        sentences.append(
            f"A program of many `grid_sample` returned after {_us(result.waiting['returned'])} us, its result was "
            f"there after {_us(result.waiting['done'])}."
        )
    return paragraph(" ".join(sentences))


def origin(result: Result) -> str:
    """What the figures came from."""
    about = result.origin
    return paragraph(f"{machine(about)}, {versions(about, ('jax', 'jaxlib'))}, {about['date']}.")


def sections(result: Result) -> list[str]:
    """Everything, in paragraphs."""
    parts = [origin(result)]
    if result.from_python:
        parts.append(host_table(result))
    if text := facts(result):
        parts.append(text)
    if result.rows:
        parts.append(rows_table(result))
    if result.origin["not_run"]:
        parts.append("Not run: " + "; ".join(result.origin["not_run"]) + ".")
    return parts


def verdict(result: Result) -> str:
    """Which promises were broken."""
    faults = result.faults
    return "\n".join(f"BROKEN: {each}" for each in faults) if faults else "every promise was kept"
