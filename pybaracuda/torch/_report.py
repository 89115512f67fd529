# SPDX-License-Identifier: Apache-2.0
"""What is taken over, and what became of the calls, as tables for people."""

from __future__ import annotations

from typing import NamedTuple

from ._installation import Line, lines
from ._route import ROUTES, Route

__all__ = ["Report", "operators", "report", "table"]


class Report(NamedTuple):
    """What became of the calls of each operator; its text is a table."""

    lines: tuple[Line, ...]

    def __str__(self) -> str:
        rows = [("operator", "device", "calls", "ours", "left to PyTorch, and why")]
        for line in self.lines:
            reasons = "; ".join(f"{count:,} ({reason})" for reason, count in line.fallbacks.items())
            rows.append((line.operator, line.device, f"{line.calls:,}", f"{line.ours:,}", reasons))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        texts = []
        for operator, device, calls, ours, reasons in rows:
            text = f"{operator:{widths[0]}}  {device:{widths[1]}}  {calls:>{widths[2]}}  {ours:>{widths[3]}}  {reasons}"
            texts.append(text.rstrip())
        return "\n".join(texts)


def report() -> Report:
    """Answer what became of the calls since the process began, of operators that were called at all."""
    return Report(tuple(line for line in lines() if line.calls))


def operators() -> dict[str, str]:
    """Answer what ``install(ops=...)`` knows: each name, and the calls that a kernel of ours takes."""
    return {route.group: route.conditions for route in sorted(ROUTES.values(), key=lambda route: route.group)}


def _is_gradient(route: Route) -> bool:
    return "_backward" in route.operator


def _compiled(routes: list[Route]) -> str:
    """Spell which of a group's routes a compiled program takes."""
    # It takes apart what PyTorch composes of operators: of a loss into those of the group, of a gradient into others.
    asked = [route for route in routes if route.level != "Autograd" or _is_gradient(route)]
    compiled = [route for route in asked if route.compiled]
    if not compiled:
        return "the compiler's own (it only moves elements)"
    if compiled == asked:
        return "yes"
    return "gradient" if all(map(_is_gradient, compiled)) else "forward"


def table() -> str:
    """Spell what is taken over as a table in Markdown, a row for each name that ``install(ops=...)`` knows."""
    rows = ["| name | operators of PyTorch | calls that are ours | compiled programs |", "|---|---|---|---|"]
    for name in sorted({route.group for route in ROUTES.values()}):
        routes = [route for route in ROUTES.values() if route.group == name]
        spelled = ", ".join(f"`{route.operator}`" for route in routes)
        conditions = "; ".join(dict.fromkeys(route.conditions for route in routes))
        said = _compiled(routes)
        rows.append(f"| `{name}` | {spelled} | {conditions} | {said} |")
    return "\n".join(rows)
