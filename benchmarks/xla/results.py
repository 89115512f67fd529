# SPDX-License-Identifier: Apache-2.0
"""What a run of the benchmark of JAX programs found, as data and as JSON, and which promises it breaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.results import Recorded

# Of an operator inside an executable on the CPU, beyond its C function; of a jitted call beside `x + 1`; of the array
# function on JAX arrays beside ours; of a program that waits for nothing, the part after which it returns.
BEYOND_US, JITTED_RATIO, EAGER_RATIO, RETURNED_PART = 1.0, 1.5, 6.0, 0.5
BARE = "jitted x + 1"
JITTED = ("jitted grid_sample", "jitted pad")
NOT_JITTED, EAGER = "pybaracuda.jax.grid_sample, not jitted", "pybaracuda.grid_sample on JAX arrays"
OURS_IN_EXECUTABLES = ("grid_sample", "pad", "segment_sum")


@dataclass
class Way:
    """Microseconds of a program; None if it could not run, and `note` says why."""

    us: float | None
    same_bits: bool | None = None
    note: str = ""


@dataclass
class RowResult:
    """A problem by ours, by XLA's way, and by that with --xla_gpu_deterministic_ops."""

    name: str
    ways: dict[str, Way] = field(default_factory=dict)

    def ratio(self, other: str) -> float | None:
        """How many times our time another way takes."""
        ours, theirs = (self.ways[who].us if who in self.ways else None for who in ("ours", other))
        return theirs / ours if ours and theirs else None


@dataclass
class Result(Recorded):
    """A whole run; all times in microseconds."""

    SCHEMA = 1

    from_python: dict[str, float] = field(default_factory=dict)
    in_executables: dict[str, float] = field(default_factory=dict)
    launches: dict[str, dict[str, float | None]] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    rows: list[RowResult] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """The promises that this run breaks."""
        found = []
        calls = self.from_python
        if calls:
            for name in JITTED:
                if calls[name] > JITTED_RATIO * calls[BARE]:
                    found.append(f"{name}: {calls[name] / calls[BARE]:.2f} x {BARE}; wanted {JITTED_RATIO} x at most")
            if calls[NOT_JITTED] * EAGER_RATIO > calls[EAGER]:
                ratio = calls[EAGER] / calls[NOT_JITTED]
                found.append(f"{NOT_JITTED}: {ratio:.1f} times cheaper than {EAGER}; wanted {EAGER_RATIO:.0f}")
        if self.origin["backend"] == "cpu":
            # The whole operator, its C function included.
            for name in OURS_IN_EXECUTABLES:
                us = self.in_executables.get(name, 0.0)
                if us > BEYOND_US:
                    found.append(f"{name} in an executable: {us:.2f} us; wanted {BEYOND_US} at most")
        for name, counts in self.launches.items():
            inside, alone = counts.values()
            if inside is not None and alone is not None and inside > alone:
                found.append(f"{name}: {inside} kernels in a program, {alone} by the array function")
        if self.waiting and self.waiting["returned"] > RETURNED_PART * self.waiting["done"]:
            found.append("a program of many operators returned only when its results were nearly there")
        for row in self.rows:
            ours = row.ways.get("ours")
            if ours is not None and (ours.us is None or not ours.same_bits):
                found.append(f"{row.name}: {ours.note or 'our bits differ from run to run'}")
        return found


def load(path: Path) -> Result:
    """Read what `Result.save` wrote."""
    data = Result.read(path)
    rows = [
        RowResult(each["name"], {who: Way(**way) for who, way in each["ways"].items()}) for each in data.pop("rows")
    ]
    return Result(**data, rows=rows)
