# SPDX-License-Identifier: Apache-2.0
"""Results as text: lines for the terminal and tables in Markdown. Nothing is measured or judged here."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.report import duration, machine, measured, paragraph, short, versions
from benchmarks.harness.results import Timing

from .results import (
    BOTH_LIMIT,
    COMPILED,
    EAGER,
    FORWARD_LIMIT,
    HOST,
    TRAINING_LIMIT,
    HostResult,
    Program,
    Result,
    RowResult,
    Run,
)
from .results import Training as TrainingRun
from .training import VARIANTS, Variant

_TITLES = {
    "pytorch": "PyTorch",
    "flag": "with the flag",
    "ours": "installed",
    "ours_flag": "installed, with the flag",
    "pytorch_compiled": "PyTorch, compiled",
    "ours_compiled": "installed, with the flag, compiled",
}
_HOST_TITLES = {"pytorch": "PyTorch", "native": "installed", "python": "installed, Python's route"}


def origin(result: Result) -> str:
    """Where the figures came from, as a paragraph."""
    given = result.origin
    text = f"{measured(given)} Medians of {given['repeat']} repetitions, caches flushed before each ({given['flush']})."
    if parts := given.get("parts"):
        text += f" Measured later, or again: {'; '.join(parts)}."
    if clocks := given.get("clocks"):
        text += " Clocks as read at the end: " + ", ".join(f"{name} {value}" for name, value in clocks.items()) + "."
    return paragraph(text)


# ------------------------------------------------------------------------------------------------------- the terminal


def _run_text(run: Run) -> str:
    if run.note or run.forward is None or run.backward is None:
        return run.note
    text = f"forward {duration(run.forward.us)}, backward {duration(run.backward.us)}"
    text += ", same bits" if run.same_bits else ", bits differ"
    if run.difference is not None:
        text += f", off PyTorch's by {run.difference:.0e}"
    if run.as_eager is not None:
        text += ", the eager program's bits" if run.as_eager else ", NOT THE EAGER PROGRAM'S BITS"
    return text


def row_lines(row: RowResult, runs: list[str]) -> str:
    """Some runs of a row for the terminal."""
    lines = [row.name, *(f"    {_TITLES[name]}: {_run_text(row.runs[name])}" for name in runs)]
    shown = [f"{name} x {ratio:.2f}" for name, ratio in row.ratios().items() if name.split()[0] in runs]
    lines += [f"    {', '.join(shown)}"] if shown else []
    lines += [f"    SLOWER: {text}" for text in row.slower if text.split()[0] in runs]
    return "\n".join([*lines, *(f"    WRONG: {fault}" for fault in row.faults if fault.split(":")[0] in runs)])


def host_line(host: HostResult) -> str:
    """One operator's costs on the host for the terminal."""
    parts = []
    for way in HOST:
        if way in host.forward:
            parts.append(f"{_HOST_TITLES[way]} {host.forward[way].us:.1f} and {host.both[way].us:.1f} us")
        elif way in host.notes:
            parts.append(f"{_HOST_TITLES[way]} {host.notes[way]}")
    limit = "" if host.kept is None else " (kept)" if host.kept else " (MISSED)"
    return f"{host.name}, forward and with backward: {', '.join(parts)}{limit}"


def training_line(run: TrainingRun) -> str:
    """One run of a training program for the terminal."""
    if run.median is None:
        return f"training, {run.variant}: {run.note}"
    return (
        f"training, {run.variant}: {run.median:.1f} ms a step, weights {run.weights}, loss {run.last_loss}, "
        f"{len(run.warnings)} warnings{': ' if run.warnings else ''}{'; '.join(run.warnings)}"
    )


def verdict(result: Result) -> str:
    """The last lines of a run."""
    slower = [f"{row.name}: {'; '.join(row.slower)}" for row in result.rows if row.slower]
    missed = [host.name for host in result.host if host.kept is False]
    lines = [f"not run: {text}" for text in result.origin["not_run"]]
    lines += [f"slower than PyTorch without the flag: {text}" for text in slower]
    lines += [f"more on the host than allowed: {', '.join(missed)}"] if missed else []
    lines += [f"FAILED: {fault}" for fault in result.faults]
    ratio = _training_ratio(result)
    lines += [f"training: {ratio:.2f} x the plain step (at most {TRAINING_LIMIT})"] if ratio else []
    return "\n".join(
        [*lines, f"{len(result.rows)} rows, {len(slower)} slower; {result.origin.get('seconds', 0):.0f} s"]
    )


def _training_ratio(result: Result) -> float | None:
    ours, plain = result.milliseconds("ours"), result.milliseconds("plain")
    return ours / plain if ours and plain else None


# ------------------------------------------------------------------------------------------------------------- Markdown


def _table(heads: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A table whose first columns are text."""
    marks = "|".join(["---"] * left + ["---:"] * (len(heads) - left))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{marks}|", *(f"| {' | '.join(row)} |" for row in rows)])


def _us(timing: Timing | None) -> str:
    return "" if timing is None else short(timing.us)


def _both(run: Run | None) -> str:
    """Forward and backward in a cell, with a mark where bits differ."""
    if run is None:
        return ""
    if run.note or run.forward is None:
        return run.note.replace("|", "\\|")
    return f"{_us(run.forward)} / {_us(run.backward)}{'' if run.same_bits else ' ≠'}"


def _ratios(row: RowResult, ours: str, theirs: str) -> str:
    found = [row.ratio(ours, theirs, direction) for direction in ("forward", "backward")]
    return " / ".join("–" if ratio is None else f"{ratio:.2f}" for ratio in found) if any(found) else ""


def rows_table(result: Result, ways: tuple[str, ...]) -> str:
    """Every row in these ways in Markdown, with the ratios of PyTorch's time without the flag to ours."""
    pairs = {"ours": "pytorch", "ours_flag": "pytorch", "ours_compiled": "pytorch_compiled"}
    heads = ["call"]
    for way in ways:
        heads += [_TITLES[way], *(["ratio"] if way in pairs else [])]
    lines = []
    for row in result.rows:
        if not any(way in row.runs for way in ways):
            continue
        cells = [row.name]
        for way in ways:
            cells += [_both(row.runs.get(way)), *([_ratios(row, way, pairs[way])] if way in pairs else [])]
        lines.append(cells)
    return _table(heads, lines)


def refusals_table(result: Result) -> str:
    """What PyTorch refuses under its deterministic flag, before and after an installation."""
    heads = ["call", "PyTorch, with the flag", "installed, with the flag", "bits of six runs", "ratio"]
    lines = []
    for row in result.rows:
        if row.refused:
            ours = row.runs.get("ours_flag", Run(note="not run"))
            bits = "" if ours.same_bits is None else "equal" if ours.same_bits else "differ"
            cells = [_both(row.runs["flag"]), _both(ours).removesuffix(" ≠"), bits]
            lines.append([row.name, *cells, _ratios(row, "ours_flag", "pytorch")])
    return _table(heads, lines)


def refusals(result: Result) -> str:
    """How many of the calls are refused, in a sentence; nothing without runs under the flag."""
    tried = [row for row in result.rows if "flag" in row.runs]
    before = [row for row in tried if row.refused]
    after = [row for row in before if "ours_flag" not in row.runs or row.runs["ours_flag"].note]
    if not before:
        return ""
    return (
        f"Of {len(tried)} calls PyTorch refuses {len(before)} under torch.use_deterministic_algorithms(True); "
        f"installed, {len(after) or 'none'}."
    )


def host_table(result: Result) -> str:
    """Host costs in Markdown."""
    ways = [way for way in HOST if any(way in host.forward for host in result.host)]
    heads = ["call", *(_HOST_TITLES[way] for way in ways), "target"]
    lines = []
    for host in result.host:
        cells = [
            f"{host.forward[way].us:.1f} / {host.both[way].us:.1f}" if way in host.forward else host.notes.get(way, "")
            for way in ways
        ]
        lines.append([host.name, *cells, "" if host.kept is None else "kept" if host.kept else "missed"])
    return _table(heads, lines)


def training_table(result: Result, variants: Sequence[Variant] = VARIANTS) -> str:
    """Training in Markdown."""
    plain = result.milliseconds("plain")
    lines = []
    for variant in variants:
        runs = result.variant(variant.name)
        if not runs or not plain:
            continue
        steps = [run.median for run in runs if run.median is not None]
        milliseconds = result.milliseconds(variant.name) or 0.0
        spread = f"{min(steps):.1f}" if len(steps) == 1 else f"{min(steps):.1f} to {max(steps):.1f}"
        weights = {run.weights for run in runs}
        bits = "one run" if len(runs) == 1 else f"the same in {len(runs)} runs" if len(weights) == 1 else "differ"
        warnings = str(max(len(run.warnings) for run in runs))
        lines.append([variant.title, spread, f"{milliseconds / plain:.2f} x", bits, warnings])
    heads = ["torchvision's Mask R-CNN, 2 images of 800 x 1216", "ms a step", "of plain", "weights", "warnings"]
    return _table(heads, lines)


def _program_cells(program: Program) -> list[str]:
    """A step's time in each way, and whether the weights repeat; "≠" after a time says that they do not."""
    cells = []
    for way in ("pytorch", "flag", "ours"):
        step = program.step(way)
        if step is None:
            cells.append(program.notes.get(way, ""))
        else:
            cells.append(f"{step:.1f}{' ≠' if program.repeats(way) is False else ''}")
    return cells


def program_line(program: Program) -> str:
    """One small program for the terminal."""
    plain, flag, ours = _program_cells(program)
    return f"{program.name}: ms a step {plain}, with the flag {flag}, ours {ours}"


def programs_table(result: Result) -> str:
    """The small programs in Markdown."""
    lines = []
    for program in result.programs:
        plain, ours = program.step("pytorch"), program.step("ours")
        ratio = f"{ours / plain:.2f} x" if plain and ours else ""
        lines.append([program.name.replace("_", " "), *_program_cells(program), ratio])
    return _table(["ms a step", "PyTorch", "with its flag", "ours, --deterministic", "of plain"], lines)


def short_origin(result: Result) -> str:
    """Where a table came from, in a sentence."""
    given = result.origin
    packages = versions(given, ("torch", "torchvision"))
    return paragraph(f"Measured {given['date']} on {machine(given)}, {packages}.")


ROWS_LEGEND = paragraph(
    """Microseconds, forward / backward, through PyTorch's own functions and autograd, float32, by the device's clock;
    the host's work is hidden behind the flush as far as a call does not wait. ≠: six runs did not have the same
    bits. flag: torch.use_deterministic_algorithms(True), with fill_uninitialized_memory = False everywhere. ratio:
    PyTorch's time without the flag over ours, "–" where the kernel is PyTorch's own in both. compiled:
    torch.compile with its defaults, dynamic=False, whose bits must be the eager program's where our kernels
    computed. Rows are 1,000,000 x 64 (prod: 100,000 x 64) with ids that are equally likely among a tenth as many
    segments; the index of scatter and gather is expanded over the columns. Boxes: sides of 16 to 224 pixels,
    uniformly on a logarithmic axis, at a scale of 1/4. Every call of ours was counted as ours, and its results held
    beside PyTorch's."""
)
HOST_LEGEND = paragraph(
    f"""Host microseconds of a call on tiny tensors, forward / forward and backward, medians of batches of calls that
    are enqueued without waiting. target: at most {FORWARD_LIMIT:g} us more than PyTorch's own forward,
    {BOTH_LIMIT:g} us forward and backward, for the native route."""
)
TRAINING_LEGEND = paragraph(
    f"""float32, SGD, equal seeds, no downloads; every run is a process of its own, the median of its steps after four
    to warm up. target: at most {TRAINING_LIMIT:g} x the plain step, the same weights in every run, no warning."""
)


PROGRAMS_LEGEND = paragraph(
    """The programs of examples/repeatable_training, which know nothing of pybaracuda: milliseconds of a step, the
    median over processes of the medians of their steps after four (26 on a GPU, six on a CPU). ≠: the processes did
    not end with the same weights. raises: the flag refuses an operator. They are small, so that most of a step is the
    host's work."""
)


# What docs/pytorch.md shows, by the beginnings of the rows' names.
_FEW = (
    "grid_sample 2d bilinear zeros 4x64x256x256 smooth",
    "replication_pad2d",
    "scatter_reduce mean",
    "index_add",
    "gather",
    "embedding",
    "torchvision roi_align",
)


def few_rows_table(result: Result) -> str:
    """Some rows, forward and backward together, eager."""
    heads = ["microseconds, forward and backward", "PyTorch", "with the flag", "installed, with the flag", "ratio"]
    lines = []
    for row in result.rows:
        if not row.name.startswith(_FEW) or "pytorch" not in row.runs:
            continue
        sums = {}
        for way in ("pytorch", "flag", "ours_flag"):
            run = row.runs.get(way)
            if run is not None and run.forward is not None and run.backward is not None:
                sums[way] = run.forward.us + run.backward.us
        raised = row.runs["flag"].note.partition(" (")[0] if "flag" in row.runs else ""
        ratio = f"{sums['pytorch'] / sums['ours_flag']:.2f} x" if {"pytorch", "ours_flag"} <= sums.keys() else ""
        cells = [f"{sums[way]:,.0f}" if way in sums else "" for way in ("pytorch", "flag", "ours_flag")]
        lines.append([row.name, cells[0], cells[1] or raised, cells[2], ratio])
    return _table(heads, lines)


def summary(result: Result) -> str:
    """How all rows did, and what a call costs on the host, in sentences."""
    ratios = [ratio for row in result.rows for ratio in row.ratios().values()]
    slower = [row for row in result.rows if row.slower]
    text = f"{len(result.rows)} rows, {len(ratios)} comparisons with PyTorch without the flag, eager and compiled: "
    text += f"{sum(round(ratio, 2) < 1 for ratio in ratios)} are slower"
    text += f" ({'; '.join(row.name for row in slower)})." if slower else "."
    for way, title in (("native", "An installed call"), ("python", "On Python's route a call")):
        beyond = [(host.beyond(way, False), host.beyond(way, True)) for host in result.host]
        forward = sorted(each for each, _ in beyond if each is not None)
        both = sorted(each for _, each in beyond if each is not None)
        if forward and both:
            text += (
                f" {title} costs the host {forward[0]:.1f} to {forward[-1]:.1f} us more than PyTorch's forward, "
                f"{both[0]:.1f} to {both[-1]:.1f} us with the backward."
            )
    return paragraph(text)


def sections(result: Result) -> list[str]:
    """Everything that a page says of a result."""
    parts = [origin(result)]
    if result.training:
        parts += ["### Training", training_table(result), TRAINING_LEGEND]
    if result.programs:
        parts += ["### Small programs", programs_table(result), PROGRAMS_LEGEND]
    if refused := refusals(result):
        parts += ["### What PyTorch refuses", refused, refusals_table(result)]
    if result.rows:
        parts += ["### Operators, eager", rows_table(result, EAGER)]
        if any(way in row.runs for row in result.rows for way in COMPILED):
            parts += ["### Operators, compiled", rows_table(result, COMPILED)]
        parts.append(ROWS_LEGEND)
    if result.host:
        parts += ["### The host", host_table(result), HOST_LEGEND]
    if result.origin["not_run"]:
        parts.append(paragraph("Not run: " + "; ".join(result.origin["not_run"]) + "."))
    return parts
