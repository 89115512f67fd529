# SPDX-License-Identifier: Apache-2.0
"""What a run found, as data and as JSON, and what follows from it: ratios and limits. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.results import Recorded, Timing, timing_of

# What an operator on tiny tensors may cost more than PyTorch's own, forward and with its backward: microseconds, for
# the native route.
FORWARD_LIMIT, BOTH_LIMIT = 2.0, 5.0
# What a step of training that repeats may take of a plain one.
TRAINING_LIMIT = 0.95
# A difference that no rounding explains.
_WRONG = 0.5

# How the calls of a row are made; those of ours begin with "ours".
EAGER = ("pytorch", "flag", "ours", "ours_flag")
COMPILED = ("pytorch_compiled", "ours_compiled")
# How tiny calls are made.
HOST = ("pytorch", "native", "python")


@dataclass
class Run:
    """One row made in one way.

    `note` says why there are no timings. `same_bits`: six runs gave the same. `taken`: the operators that our kernels
    did, forward and backward; `left`: those that they left to PyTorch, with the reason. `difference`: the largest from
    PyTorch's results over the largest of these; `as_eager`: whether what our kernels did has the eager program's bits.
    """

    forward: Timing | None = None
    backward: Timing | None = None
    note: str = ""
    same_bits: bool | None = None
    taken: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    difference: float | None = None
    as_eager: bool | None = None


@dataclass
class RowResult:
    """One row; the keys of `runs` are those of EAGER and COMPILED."""

    name: str
    runs: dict[str, Run] = field(default_factory=dict)

    def ratio(self, ours: str, theirs: str, direction: str) -> float | None:
        """How many times our time PyTorch takes; None where our kernels did nothing or one has no time."""
        mine, other = self.runs.get(ours), self.runs.get(theirs)
        if mine is None or other is None or not mine.taken.get(direction):
            return None
        mine_timing, other_timing = getattr(mine, direction), getattr(other, direction)
        return None if mine_timing is None or other_timing is None else float(other_timing.us / mine_timing.us)

    def ratios(self) -> dict[str, float]:
        """Every comparison of a call that our kernels did with PyTorch's without the flag."""
        pairs = [("ours", "pytorch"), ("ours_flag", "pytorch"), ("ours_compiled", "pytorch_compiled")]
        found = {}
        for ours, theirs in pairs:
            for direction in ("forward", "backward"):
                ratio = self.ratio(ours, theirs, direction)
                if ratio is not None:
                    found[f"{ours} {direction}"] = ratio
        return found

    @property
    def refused(self) -> bool:
        """Whether PyTorch raises under its deterministic flag."""
        return "flag" in self.runs and self.runs["flag"].note.startswith("raises")

    @property
    def slower(self) -> list[str]:
        """Where ours is slower than PyTorch without the flag, to two decimals."""
        return [f"{name} {ratio:.2f} x" for name, ratio in self.ratios().items() if round(ratio, 2) < 1]

    @property
    def faults(self) -> list[str]:
        """What is wrong, beyond speed: bits that differ, results far off, calls that were not ours."""
        found = []
        for name, run in self.runs.items():
            if not name.startswith("ours"):
                continue
            if run.note:
                found.append(f"{name}: {run.note}")
            elif not any(run.taken.values()):
                found.append(f"{name}: no call was ours ({'; '.join(run.left) or 'none was made'})")
            elif not run.same_bits:
                found.append(f"{name}: bits differ")
            if run.difference is not None and not run.difference < _WRONG:
                found.append(f"{name}: off by {run.difference:.1e}")
            if run.as_eager is False:
                found.append(f"{name}: not the eager program's bits")
        return found


@dataclass
class HostResult:
    """Host time of a call on tiny tensors in each way of HOST: forward, and forward with backward."""

    name: str
    forward: dict[str, Timing] = field(default_factory=dict)
    both: dict[str, Timing] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def beyond(self, way: str, both: bool) -> float | None:
        """How much more than PyTorch's own it costs."""
        found = self.both if both else self.forward
        return None if way not in found or "pytorch" not in found else found[way].us - found["pytorch"].us

    @property
    def kept(self) -> bool | None:
        """Whether the native route keeps the limits; None without one."""
        forward, both = self.beyond("native", False), self.beyond("native", True)
        return None if forward is None or both is None else forward <= FORWARD_LIMIT and both <= BOTH_LIMIT


@dataclass
class Training:
    """One run of a training program in a process of its own; `note` says why there is nothing."""

    variant: str
    command: str
    milliseconds: list[float] = field(default_factory=list)
    weights: str = ""
    warnings: list[str] = field(default_factory=list)
    last_loss: float | None = None
    megabytes: float | None = None
    note: str = ""

    @property
    def median(self) -> float | None:
        """Milliseconds of a step after the warm-up."""
        return median(self.milliseconds) if self.milliseconds else None


@dataclass
class Program:
    """A small training program, by the way it was run: of each process a step's time and a hash of the weights.

    `notes` says why a way has none.
    """

    name: str
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    weights: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def step(self, way: str) -> float | None:
        """A step's median over a way's processes."""
        found = self.milliseconds.get(way)
        return median(found) if found else None

    def repeats(self, way: str) -> bool | None:
        """Whether all of a way's processes ended with the same weights; None for fewer than two."""
        found = self.weights.get(way, [])
        return len(set(found)) == 1 if len(found) > 1 else None

    @property
    def faults(self) -> list[str]:
        """What is wrong, beyond speed."""
        found = [f"{way}: {note}" for way, note in self.notes.items() if note != "raises" or way != "flag"]
        return [*found, "ours: the runs end with different weights"] if self.repeats("ours") is False else found


@dataclass
class Result(Recorded):
    """A whole run."""

    KIND = "PyTorch benchmark's result"
    SCHEMA = 1

    host: list[HostResult] = field(default_factory=list)
    rows: list[RowResult] = field(default_factory=list)
    training: list[Training] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    def row(self, name: str) -> RowResult:
        """The row of this name, which is entered if it is new."""
        for row in self.rows:
            if row.name == name:
                return row
        self.rows.append(RowResult(name))
        return self.rows[-1]

    def variant(self, name: str) -> list[Training]:
        """The runs of a variant that came to their end."""
        return [run for run in self.training if run.variant == name and run.median is not None]

    def milliseconds(self, variant: str) -> float | None:
        """A step's median over the medians of a variant's runs."""
        found = [run.median for run in self.variant(variant) if run.median is not None]
        return median(found) if found else None

    @property
    def faults(self) -> list[str]:
        """What is wrong, beyond speed."""
        found = [f"{row.name}: {fault}" for row in self.rows for fault in row.faults]
        found += [f"{program.name}: {fault}" for program in self.programs for fault in program.faults]
        for variant in dict.fromkeys(run.variant for run in self.training):
            runs = self.variant(variant)
            # With PyTorch's own flag a step may take longer than anybody waits.
            if variant != "flag":
                found += [
                    f"training, {variant}: {run.note}" for run in self.training if run.variant == variant and run.note
                ]
            if variant.startswith("ours"):
                if len({run.weights for run in runs}) > 1:
                    found.append(f"training, {variant}: the runs end with different weights")
                found += [f"training, {variant}: {text}" for text in sorted({w for run in runs for w in run.warnings})]
        return found


def run_of(data: Mapping[str, Any]) -> Run:
    """A Run of its fields."""
    return Run(**{**data, "forward": timing_of(data["forward"]), "backward": timing_of(data["backward"])})


def host_of(data: Mapping[str, Any]) -> HostResult:
    """A HostResult of its fields."""
    times = {name: {way: Timing(**each) for way, each in data[name].items()} for name in ("forward", "both")}
    return HostResult(**{**data, **times})


def load(path: Path) -> Result:
    """Read what `Result.save` wrote."""
    data = Result.read(path)
    rows = [RowResult(row["name"], {name: run_of(run) for name, run in row["runs"].items()}) for row in data["rows"]]
    training = [Training(**each) for each in data["training"]]
    # Results from before there were programs have none.
    programs = [Program(**each) for each in data.get("programs", [])]
    return Result(data["origin"], [host_of(each) for each in data["host"]], rows, training, programs)


def updated(earlier: Result, later: Result) -> Result:
    """A result with what a later run has in place of what it had: rows, host's costs, variants of training, programs.

    Raises ValueError if the runs are not of the same machine and software.
    """
    earlier.check_same(later, ("device", "driver", "versions"))
    sections = later.origin["sections"]
    # What was not run then and was not tried now is still not there.
    missing = [text for text in earlier.origin["not_run"] if text.partition(",")[0] not in sections]
    parts = [*earlier.origin.get("parts", []), f"{', '.join(sections)}: {later.origin['date']}"]
    about = {**earlier.origin, "not_run": [*missing, *later.origin["not_run"]], "parts": parts}
    result = Result(about, later.host or earlier.host, [RowResult(row.name, dict(row.runs)) for row in earlier.rows])
    for row in later.rows:
        result.row(row.name).runs.update(row.runs)
    fresh = {run.variant for run in later.training}
    result.training = [run for run in earlier.training if run.variant not in fresh] + later.training
    fresh = {program.name for program in later.programs}
    result.programs = [each for each in earlier.programs if each.name not in fresh] + later.programs
    return result
