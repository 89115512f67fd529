# SPDX-License-Identifier: Apache-2.0
"""One call as data: what is drawn, replayed and written down. Nothing here draws, judges or calls anything."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# A scalar's number, a host array's entries, None for a pointer in host memory that is NULL.
Value = Any
Values = dict[str, Value]


class Placed(NamedTuple):
    """Where a tensor stands: `at` says which end of it touches a guard page (or canaries, where there are none).

    `shift` is in bytes, away from the guard: an address that is not aligned, or only to the element.
    """

    at: str = "end"  # "end" or "start" (of its region), or "null"
    shift: int = 0


class Content(NamedTuple):
    """A tensor's elements: a kind of data (content.py) and from where on in the pool of that kind."""

    kind: str
    start: int


class Alias(NamedTuple):
    """An output that shares memory with another tensor: its region begins `shift` bytes behind the other's."""

    output: str
    other: str
    shift: int


class Workspace(NamedTuple):
    """`kind` is none, null (with bytes), exact, larger, short (by one byte), misaligned or frozen (4 bytes a segment).

    What it holds is rubbish.
    """

    kind: str = "none"
    at: str = "end"


class Call(NamedTuple):
    """Everything about a call that is not the library's."""

    symbol: str
    values: Values
    places: dict[str, Placed]
    contents: dict[str, Content]
    workspace: Workspace = Workspace()
    stream: int = 0
    alias: Alias | None = None
    # The struct of options: None is NULL; what its size field says, and the byte behind the fields that are known.
    options_size: int | None = None
    options_beyond: int = 0
    # Whether run is called by a thread that flushes subnormal numbers to zero; run_packed never is.
    flushes: bool = False


def to_json(call: Call) -> str:
    """One line; `from_json` reads it back."""
    return json.dumps(call._asdict())


def from_json(text: str) -> Call:
    found = json.loads(text)
    found["places"] = {name: Placed(*each) for name, each in found["places"].items()}
    found["contents"] = {name: Content(*each) for name, each in found["contents"].items()}
    found["workspace"] = Workspace(*found["workspace"])
    found["alias"] = Alias(*found["alias"]) if found["alias"] else None
    return Call(**found)
