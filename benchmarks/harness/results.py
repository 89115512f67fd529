# SPDX-License-Identifier: Apache-2.0
"""What a run found, as data and as JSON, and what follows from it: ratios, shares, limits. Nothing is measured here.

The benchmarks through PyTorch and of JAX programs find other things, and write them down as this one does: `Recorded`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pybaracuda._abi import OPERATORS

from .case import Limit


@dataclass
class Timing:
    """Microseconds: the median, and the 10th and 90th percentile, of `count` repetitions."""

    us: float
    low_us: float
    high_us: float
    count: int


@dataclass
class Contestant:
    """How one contender did on a row.

    `timing` is None if it could not run, and `note` says why. `stable`: repeats had the same bits. `written`: every
    element was written, None if it makes its own outputs. `error`: the largest error of the checked parts over the
    largest value there; `of_bound`: the largest part that any element's error is of what rounding may make it.
    """

    name: str
    timing: Timing | None
    note: str = ""
    stable: bool | None = None
    written: bool | None = None
    error: float | None = None
    of_bound: float | None = None


@dataclass
class RowResult:
    """One line. `twin_same` says whether all bits are those of `twin`; `measured` when, if not in the result's run."""

    name: str
    backend: str
    operator: str
    element: str
    headline: bool
    bytes: int
    light_us: float
    entropy: int
    checked: str
    ours: Contestant
    copy: Timing
    peers: list[Contestant] = field(default_factory=list)
    twin: str = ""
    twin_same: bool | None = None
    one_thread_us: float | None = None
    limits: list[Limit] = field(default_factory=list)
    measured: str = ""

    @property
    def family(self) -> str:
        """The operator's family; an operator of another version's results is one of its own."""
        operator = OPERATORS.get(self.operator)
        return self.operator.removesuffix("_backward") if operator is None else operator.family

    @property
    def right(self) -> bool:
        """Whether ours did what is promised. A case that the library does not do yet breaks no promise."""
        if self.ours.timing is None:
            return self.ours.note.startswith("not supported")
        kept = bool(self.ours.stable and self.ours.written) and self.twin_same is not False
        return kept and (self.ours.of_bound is None or self.ours.of_bound <= 1)

    @property
    def share(self) -> float | None:
        """Ours as a part of the speed of light."""
        return None if self.ours.timing is None else self.light_us / self.ours.timing.us

    @property
    def best_peer(self) -> Contestant | None:
        """The fastest one."""
        return self.best_named("")

    def best_named(self, beginning: str) -> Contestant | None:
        """The fastest one whose name begins so."""
        timed = [peer for peer in self.peers if peer.timing is not None and peer.name.startswith(beginning)]
        return min(timed, key=lambda peer: peer.timing.us if peer.timing else 0.0, default=None)

    def ratio(self, peer: Contestant) -> float | None:
        """How many times our time a peer takes."""
        if self.ours.timing is None or peer.timing is None:
            return None
        return peer.timing.us / self.ours.timing.us


@dataclass
class HostResult:
    """Host time of one way to call, and of the C function alone where that is inside, in microseconds.

    `limit_us` is for the difference.
    """

    name: str
    timing: Timing
    bare_us: float | None = None
    limit_us: float | None = None
    note: str = ""

    @property
    def beyond_us(self) -> float | None:
        """What the call costs beside the C function."""
        return None if self.bare_us is None else self.timing.us - self.bare_us

    @property
    def kept(self) -> bool | None:
        """Whether the limit is kept; None without one."""
        return None if self.limit_us is None or self.beyond_us is None else self.beyond_us <= self.limit_us


@dataclass
class Recorded:
    """A whole run of a benchmark as it is written down; what it found is for the classes that inherit."""

    # What such a file is, for a reader, and which of its forms this is.
    KIND: ClassVar[str] = "benchmark result"
    SCHEMA: ClassVar[int]

    origin: dict[str, Any]

    @property
    def device(self) -> str:
        """What computed."""
        return str(self.origin["device"])

    @property
    def file_name(self) -> str:
        """Under which name a result is committed."""
        device = re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-")
        return f"{device}-{str(self.origin['date']).split()[0]}.json"

    def save(self, path: Path) -> None:
        """Write the JSON file, whole or not at all."""
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(json.dumps({"schema": self.SCHEMA, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> dict[str, Any]:
        """The fields that `save` wrote; ValueError if the file is of another kind or form."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("schema", None) != cls.SCHEMA:
            raise ValueError(f"{path} is not a {cls.KIND} of schema {cls.SCHEMA}")
        return fields

    def check_same(self, later: Recorded, names: Sequence[str]) -> None:
        """Raise ValueError if a later run is not of the same machine and software, as far as `names` of origins say.

        A peer that is not installed now is missing in the later rows alone.
        """
        for name in names:
            before, now = self.origin[name], later.origin[name]
            if isinstance(before, dict):
                before = {part: version for part, version in before.items() if part in now}
            if before != now:
                raise ValueError(f"{name} differs: {before} was measured, now it is {now}")


AnyResult = TypeVar("AnyResult", bound=Recorded)


@dataclass
class Result(Recorded):
    """A whole run."""

    SCHEMA = 1

    rows: list[RowResult] = field(default_factory=list)
    host: list[HostResult] = field(default_factory=list)

    def met(self, row: RowResult, limit: Limit) -> bool | None:
        """Whether a row keeps a limit; None if this run cannot tell."""
        if row.ours.timing is None:
            return None
        wanted: float | None = None
        if limit.kind == "us" and limit.of in self.device:
            wanted = 1.0
        elif limit.kind == "copy":
            wanted = row.copy.us
        elif limit.kind == "light":
            wanted = row.light_us
        elif limit.kind == "peer" and (best := row.best_named(limit.of)) and best.timing:
            wanted = best.timing.us
        elif limit.kind == "row":
            other = next((each for each in self.rows if (each.name, each.backend) == (limit.of, row.backend)), None)
            wanted = other.ours.timing.us if other and other.ours.timing else None
        return None if wanted is None else row.ours.timing.us <= limit.factor * wanted


def timing_of(data: Mapping[str, Any] | None) -> Timing | None:
    """A Timing of its fields."""
    return None if data is None else Timing(**data)


def _contestant(data: Mapping[str, Any]) -> Contestant:
    return Contestant(**{**data, "timing": timing_of(data["timing"])})


def _row(data: Mapping[str, Any]) -> RowResult:
    return RowResult(
        **{
            **data,
            "ours": _contestant(data["ours"]),
            "copy": Timing(**data["copy"]),
            "peers": [_contestant(each) for each in data["peers"]],
            "limits": [Limit(**each) for each in data["limits"]],
        }
    )


def load(path: Path) -> Result:
    """Read what `Result.save` wrote."""
    data = Result.read(path)
    hosts = [HostResult(**{**each, "timing": Timing(**each["timing"])}) for each in data["host"]]
    return Result(data["origin"], [_row(each) for each in data["rows"]], hosts)


def updated(result: Result, later: Result) -> Result:
    """A result with the rows of a later run in place of those of the same name; the host's costs if that has some.

    Raises ValueError if the runs are not of the same machine and software.
    """
    result.check_same(later, ("device", "driver", "versions", "flush"))
    fresh = {row.name: replace(row, measured=later.origin["date"]) for row in later.rows}
    rows = [fresh.pop(row.name, row) for row in result.rows]
    return Result(result.origin, [*rows, *fresh.values()], later.host or result.host)


def newest(folder: Path) -> list[Path]:
    """The newest file of every device in a folder, by the names that `Recorded.file_name` gives."""
    found = {path.stem[: -len("-YYYY-MM-DD")]: path for path in sorted(folder.glob("*.json"))}
    return list(found.values())


def committed(folder: Path, load: Callable[[Path], AnyResult]) -> list[tuple[Path, AnyResult]]:
    """The newest result of every device in a folder, GPUs first."""
    found = [(path, load(path)) for path in newest(folder)]
    return sorted(found, key=lambda each: (each[1].origin["backend"] != "cuda", each[1].device))


def summary(values: Sequence[float]) -> Timing:
    """Seconds of repetitions as a Timing."""
    import numpy as np

    low, middle, high = (float(each) * 1e6 for each in np.percentile(values, (10, 50, 90)))
    return Timing(middle, low, high, len(values))
