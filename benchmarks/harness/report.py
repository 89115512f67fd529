# SPDX-License-Identifier: Apache-2.0
"""Results as text: lines for the terminal and tables in Markdown. Nothing is measured or judged here."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .place import FEWEST_REPEATS
from .results import Contestant, HostResult, Result, RowResult
from .table import ROWS


def duration(us: float) -> str:
    """Microseconds, or milliseconds from ten thousand on."""
    if us >= 10000:
        return f"{us / 1000:.1f} ms"
    return f"{us:.0f} us" if us >= 1000 else f"{us:.1f} us"


def short(us: float) -> str:
    """Microseconds to three or four figures, for tables."""
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e8 else f"{count / 1e6:.0f} MB"


def percent(part: float) -> str:
    """A part as whole percent, or to two figures below ten."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def _error(contestant: Contestant) -> str:
    if contestant.error is None:
        return ""
    return "error 0" if contestant.error == 0 else f"error {contestant.error:.1e}"


def _our_checks(row: RowResult) -> str:
    ours, found = row.ours, []
    found.append("same bits" if ours.stable else "BITS DIFFER")
    if row.twin_same is not None:
        found.append(f"those of {row.twin}" if row.twin_same else f"NOT THOSE OF {row.twin.upper()}")
    if ours.written is not True:
        found.append("NOT ALL WRITTEN")
    if ours.of_bound is not None:
        found.append(f"{_error(ours)}, {percent(ours.of_bound)} of its bound" + ("" if ours.of_bound <= 1 else " !!"))
    return ", ".join(found)


def lines(result: Result, row: RowResult) -> str:
    """One row for the terminal."""
    ours = row.ours
    head = f"{_megabytes(row.bytes)}  light {duration(row.light_us)}  copy {duration(row.copy.us)}"
    if ours.timing is None:
        text = [row.name, f"    {head}  {ours.note}"]
    else:
        of_light = f"{percent(row.share or 0)} of light"
        text = [row.name, f"    {head}  ours {duration(ours.timing.us)} ({of_light}); {_our_checks(row)}"]
    if row.one_thread_us is not None:
        text[-1] += f"; on one thread {duration(row.one_thread_us)}"
    for limit in row.limits:
        met = result.met(row, limit)
        text.append(f"    {'unknown' if met is None else 'kept' if met else 'MISSED'}: {limit.text}")
    for peer in row.peers:
        if peer.timing is None:
            text.append(f"    {peer.name}: {peer.note}")
            continue
        ratio = row.ratio(peer)
        found = [duration(peer.timing.us), *([f"x {ratio:.2f}"] if ratio is not None else [])]
        found.append("same bits" if peer.stable else "bits differ")
        found += [part for part in (_error(peer), peer.note) if part]
        text.append(f"    {peer.name} {', '.join(found)}")
    return "\n".join(text)


def host_line(host: HostResult) -> str:
    """One way to call, for the terminal."""
    text = f"{host.name}: {host.timing.us:.2f} us"
    if host.beyond_us is not None:
        text += f", {host.beyond_us:.2f} us beyond the C call"
    if host.kept is not None:
        text += f" ({'kept' if host.kept else 'MISSED'}: at most {host.limit_us:g} us)"
    return text + (f" ({host.note})" if host.note else "")


def verdict(result: Result) -> str:
    """The last line of a run."""
    wrong = [row.name for row in result.rows if not row.right]
    judged = [met for row in result.rows for limit in row.limits if (met := result.met(row, limit)) is not None]
    text = f"{len(result.rows)} rows, {sum(judged)} of {len(judged)} limits kept"
    return f"FAILED: wrong results in {len(wrong)} rows: {'; '.join(wrong)}" if wrong else text


# ------------------------------------------------------------------------------------------------------------- Markdown


def _bits(stable: bool | None) -> str:
    return {True: "same", False: "differ", None: ""}[stable]


def _markdown_cells(result: Result, row: RowResult) -> dict[str, str]:
    """Everything that a table may say of a row, by column heading."""
    ours, best = row.ours, row.best_peer
    cells = {
        "case": row.name,
        "bytes": _megabytes(row.bytes),
        "light": short(row.light_us),
        "copy": short(row.copy.us),
    }
    if ours.timing is None:
        cells |= {"ours": "not supported"}
    else:
        cells |= {
            "ours": f"**{short(ours.timing.us)}**",
            "of light": percent(row.share or 0),
            "bits": _bits(ours.stable),
        }
    if best is not None and best.timing is not None:
        cells |= {"best peer": f"{short(best.timing.us)} ({best.name})", "its bits": _bits(best.stable)}
        if (ratio := row.ratio(best)) is not None:
            cells["ratio"] = f"{ratio:.1f} x" if ratio >= 10 else f"{ratio:.2f} x"
    marks = [result.met(row, limit) for limit in row.limits]
    missed = [limit.text for limit, met in zip(row.limits, marks, strict=True) if met is False]
    cells["target"] = "missed: " + "; ".join(missed) if missed else "kept" if any(marks) else ""
    return cells


_EVERY_COLUMN = (
    "case",
    "bytes",
    "light",
    "copy",
    "ours",
    "of light",
    "bits",
    "best peer",
    "ratio",
    "its bits",
    "target",
)
_FEW_COLUMNS = ("case", "light", "ours", "of light", "bits", "best peer", "ratio", "its bits")
_LEFT = ("case", "bits", "its bits", "target")


def headlines(result: Result, most: int) -> list[str]:
    """The rows that the README shows: the first headline of each family, so many at most."""
    firsts: dict[str, str] = {}
    for row in result.rows:
        if row.headline and row.ours.timing is not None:
            firsts.setdefault(row.family, row.name)
    return list(firsts.values())[:most]


def table(result: Result, only: Collection[str] | None = None) -> str:
    """The rows in Markdown, microseconds throughout; `only` some of them, by name, have fewer columns."""
    columns = _EVERY_COLUMN if only is None else _FEW_COLUMNS
    text = [" | ".join(columns), "|".join("---" if column in _LEFT else "---:" for column in columns)]
    for row in result.rows:
        if only is None or row.name in only:
            cells = _markdown_cells(result, row)
            text.append(" | ".join(cells.get(column, "") for column in columns))
    return "\n".join(f"| {line} |" for line in text)


def peers_table(result: Result) -> str:
    """Every peer of every row in Markdown."""
    text = ["| case | peer | us | 10 % .. 90 % | ratio | bits | error | note |", "|---|---|---:|---|---:|---|---|---|"]
    for row in result.rows:
        for each in (row.ours, *row.peers):
            timing, ratio = each.timing, row.ratio(each)
            cells = [row.name if each is row.ours else "", each.name]
            cells += [short(timing.us), f"{short(timing.low_us)} .. {short(timing.high_us)}"] if timing else ["", ""]
            cells += ["" if ratio is None else f"{ratio:.2f}", _bits(each.stable)]
            cells += ["" if each.error is None else f"{each.error:.1e}", each.note.replace("|", "\\|")]
            text.append("| " + " | ".join(cells) + " |")
        if row.one_thread_us is not None:
            text.append(f"| | pybaracuda, one thread | {short(row.one_thread_us)} | | | | | |")
    return "\n".join(text)


def host_table(result: Result) -> str:
    """Host costs in Markdown."""
    text = ["| call | us | beyond the C call | target |", "|---|---:|---:|---|"]
    for host in result.host:
        target = "" if host.kept is None else f"at most {host.limit_us:g} us: {'kept' if host.kept else 'missed'}"
        beyond = "" if host.beyond_us is None else f"{host.beyond_us:.2f}"
        name = f"{host.name} ({host.note})" if host.note else host.name
        text.append(f"| {name} | {host.timing.us:.2f} | {beyond} | {target} |")
    return "\n".join(text)


def machine(given: Mapping[str, Any]) -> str:
    """What computed, of a result's origin."""
    driver = f", driver {given['driver']}" if given["driver"] else ""
    return f"{given['device']}{driver}"


def versions(given: Mapping[str, Any], packages: Sequence[str] | None = None) -> str:
    """Packages of a result's origin: all of them, or those of these that took part."""
    found = given["versions"]
    return ", ".join(f"{name} {found[name]}" for name in (packages or found) if name in found)


def measured(given: Mapping[str, Any]) -> str:
    """When, on what and with what a run was, in a sentence."""
    return f"Measured {given['date']} on {machine(given)}; {versions(given)}."


def origin(result: Result) -> str:
    """Where the figures came from, as a paragraph."""
    given = result.origin
    text = (
        f"{measured(given)} Medians of {given['repeat']} repetitions (of slow peers at least {FEWEST_REPEATS}) in "
        f"turns, caches flushed before each ({given['flush']}); copy rate {given['copy_rate'] / 1e9:.0f} GB/s (read "
        f"and written); a call that does nothing takes {given['floor_us']:.1f} us."
    )
    names, today = {row.name for row in result.rows}, [row.name for row in ROWS if row.backend == given["backend"]]
    missing = sum(name not in names for name in today)
    if names and missing:
        text += f" {missing} of the benchmark's {len(today)} rows are not in this run."
    for date in sorted({row.measured for row in result.rows if row.measured}):
        counts = [row.ours.timing.count for row in result.rows if row.measured == date and row.ours.timing]
        if counts:
            text += f" {len(counts)} rows and their peers were measured {date}, {max(counts)} repetitions each."
    if clocks := given.get("clocks"):
        text += " Clocks as read after the last row: " + ", ".join(f"{n} {v}" for n, v in clocks.items()) + "."
    return paragraph(text)


def short_origin(result: Result) -> str:
    """Where the figures came from and what they mean, in two sentences."""
    given = result.origin
    return paragraph(
        f"Microseconds, measured {given['date']} on {machine(given)}. light: the time of the bytes that must be read "
        "and written, at the copy rate; bits: whether repeats gave the same ones."
    )


def paragraph(text: str) -> str:
    """Fill a text's lines."""
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


INPUTS = paragraph(
    """Inputs are fresh random numbers in every run. boxes: inside the image, sides between the two numbers, uniformly
    on a logarithmic axis. smooth: a grid turned by about 0.2 and a little smaller, with a wave of a hundredth of the
    image on it; random: every sample anywhere; one point: all samples on one place. power law ids: Zipf's law with
    exponent 1, so that the hottest of 100,000 segments has 8 % of the rows; half or all on one id, and 64 ids that lie
    anywhere. Segments: unsorted_segment_* takes ids in any order, segment_* ascending ones, segment_csr_* offsets; rows
    of products are near 1, where even ties are split they are quarters. bw: gradient, fw: forward."""
)
LEGEND = paragraph(
    """Microseconds. bytes: what must be read and written at least. light: their time at the measured copy rate. copy: a
    plain copy of as many bytes. ours: everything that a call costs on the device, scratch and sorting included. bits:
    whether repeats gave the same bits. Every result was checked in the run that timed it: outputs poisoned before,
    every element written, all bits those of the CPU library (on the CPU: those of one thread), random parts within
    their rounding bound of float64 definitions. Peers had their outputs preallocated where they take them; what they
    zero or save on the way counts. On a GPU, JAX's times are differences of the host's clock over many enqueued calls
    with and without the function; its gradient of the segment maximum is forward and vjp less forward. target: what
    the rows were meant to reach, in microseconds on an H100."""
)
