# SPDX-License-Identifier: Apache-2.0
"""Draws a run as a roofline: achieved bandwidth over the bytes that must move. Nothing is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .results import Result, RowResult

_STYLE: Any = {"font.family": "DejaVu Sans", "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True}
# One colour for each family, in the order in which they come.
_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#7f7f7f", "#8c564b", "#bcbd22", "#5d4fb3"),
    *("#17becf", "#393b79", "#637939", "#843c39", "#a1d99b"),
    *("#7b4173", "#fdae6b", "#3182bd", "#e7969c", "#9c9ede", "#d6616b"),
    *("#8ca252", "#ce6dbd", "#00868b"),
    *("#b5651d", "#4b0082", "#ffd92f", "#66c2a5"),
)
_PEER = "#9a9a9a"


def _rate(row: RowResult, us: float) -> float:
    """GB/s of the bytes that must move."""
    return row.bytes / us / 1e3


def draw(result: Result, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write the picture: ours filled, the best peer hollow below it, the roof that the machine's copy makes."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = [row for row in result.rows if row.ours.timing is not None]
    rate, floor = float(result.origin["copy_rate"]) / 1e9, float(result.origin["floor_us"])
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11, 6.4), dpi=120)
        axes = figure.add_axes((0.075, 0.1, 0.9, 0.8))
        if rows:
            _draw_rows(axes, rows)
            sizes = np.geomspace(min(row.bytes for row in rows) / 1.6, max(row.bytes for row in rows) * 1.6, 200)
            # A copy cannot be shorter than a call that does nothing.
            axes.plot(sizes / 1e6, sizes / 1e3 / (floor + sizes / (rate * 1e3)), color="black", linewidth=1.4)
            axes.text(sizes[-1] / 1e6, rate * 1.03, f"copy rate {rate:,.0f} GB/s", ha="right", va="bottom", fontsize=9)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("bytes that must move, MB")
        axes.set_ylabel("GB/s of those bytes")
        title = f"pybaracuda on {result.device}, {str(result.origin['date']).split()[0]}"
        axes.set_title(f"{title}: filled ours, hollow the best peer", loc="left", fontsize=11)
        axes.legend(loc="lower right", fontsize=8.5, framealpha=0.95)
        figure.savefig(path, metadata=metadata)


def _draw_rows(axes: Any, rows: list[RowResult]) -> None:
    families = list(dict.fromkeys(row.family for row in rows))
    for row in rows:
        assert row.ours.timing is not None
        colour, best = _COLOURS[families.index(row.family) % len(_COLOURS)], row.best_peer
        marker = "o" if row.operator.endswith("_backward") else "^"
        x, y = row.bytes / 1e6, _rate(row, row.ours.timing.us)
        if best is not None and best.timing is not None:
            low = _rate(row, best.timing.us)
            axes.plot([x, x], [low, y], color=colour, linewidth=0.8, alpha=0.5)
            axes.plot([x], [low], marker, markerfacecolor="white", markeredgecolor=_PEER, markersize=5.5)
        axes.plot([x], [y], marker, color=colour, markersize=6.5)
    for number, family in enumerate(families):
        axes.plot([], [], "o", color=_COLOURS[number % len(_COLOURS)], label=family)
    axes.plot([], [], "^", color="black", label="forward", linestyle="none")
    axes.plot([], [], "o", color="black", label="backward", linestyle="none")
