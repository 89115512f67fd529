# SPDX-License-Identifier: Apache-2.0
"""Compares what a library answered and wrote with what was expected of it, in words that a report can hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.fuzzing.abi import Symbol
from tools.fuzzing.model import INVALID, OK, Verdict

Report = Callable[[str], None]
# What run and run_packed find in their outputs: no byte of a result equals both.
POISONS = (b"\xa5", b"\x5a")


def check_answer(report: Report, verb: str, symbol: Symbol, verdict: Verdict, status: int, text: str) -> None:
    """Status and words; can_implement knows nothing of what comes after the problem."""
    if status == INVALID and _is_too_irregular(verdict, text):
        return
    if status != verdict.status:
        wanted = f"{verdict.status} for {', '.join(sorted(verdict.names))}" if verdict.names else str(verdict.status)
        report(f"{verb} answers {status} ({text!r}), wanted {wanted}")
    elif status == OK:
        if text:
            report(f"{verb} succeeds and says {text!r}")
    elif not text.startswith(symbol.prefix):
        report(f"{verb}: the text does not begin with the symbol: {text!r}")
    elif not any(name in text for name in verdict.names):
        report(f"{verb}: the text names none of {sorted(verdict.names)}: {text!r}")


def _is_too_irregular(verdict: Verdict, text: str) -> bool:
    """Whether strides are refused, in the words of the library, that the header allows to be refused."""
    says_so = "too irregular" in text or "shares memory with" in text
    return says_so and any(name in text for name in verdict.irregular)


def check_results(report: Report, symbol: Symbol, one: list[bytes], two: list[bytes], unspecified: bool) -> None:
    """The results of run and of run_packed, which stood in different poison."""
    for output, mine, theirs in zip(symbol.outputs, one, two, strict=True):
        if mine == theirs:
            continue
        width = output.element_bytes
        a, b = np.frombuffer(mine, np.uint8).reshape(-1, width), np.frombuffer(theirs, np.uint8).reshape(-1, width)
        # One of the two may have written it.
        untouched = (a != b).any(1) & ((a == POISONS[0][0]).all(1) | (b == POISONS[1][0]).all(1))
        if untouched.any():
            report(f"{output.name}: element {int(untouched.argmax())} is not written")
        elif not unspecified:
            report(f"{output.name} of run differs {where(mine, theirs, width)} from that of run_packed")


def where(one: bytes, two: bytes, width: int) -> str:
    a, b = np.frombuffer(one, np.uint8).reshape(-1, width), np.frombuffer(two, np.uint8).reshape(-1, width)
    differs = (a != b).any(1)
    first = int(differs.argmax())
    return (f"in {int(differs.sum())} of {len(a)} elements, the first at {first} "
            f"({a[first].tobytes().hex()}, {b[first].tobytes().hex()}, bytes in memory order),")  # fmt: skip
