# SPDX-License-Identifier: Apache-2.0
"""The rows of segment operations; nothing about how one is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.harness.case import FORWARD, NO_SLOWER, Limit, Row, no_cliff, on_cpu, us
from verify.definitions.segment import DEFINITIONS

from .case import FORMS, Segment

_LARGE: dict[str, Any] = dict(rows=1_000_000, columns=64, segments=100_000)
_LITTLE: dict[str, Any] = dict(rows=20_000, columns=64, segments=2_000)
_FEW: dict[str, Any] = dict(rows=4_000_000, columns=16, segments=64)
_TOKENS: dict[str, Any] = dict(rows=500_000, columns=128, segments=100_000, element="bf16")
# More than 2^31 elements: a graph that torch_scatter's users reported. Its output is small, so that checks are quick.
_HUGE: dict[str, Any] = dict(rows=12_200_000, columns=192, segments=100_000)
# Of every operator that has no larger row; a seventeenth of the work.
_MIDDLE: dict[str, Any] = dict(rows=120_000, columns=32, segments=12_000)
# One value a row.
_LINE: dict[str, Any] = dict(rows=4_000_000, columns=1, segments=400_000)

_LITTLE_MAX = Segment(operation="max_backward", **_LITTLE)
_FEW_MAX = Segment(operation="max_backward", **_FEW)
_TOKENS_MAX = Segment(operation="max_backward", **_TOKENS)

_AHEAD = (Limit("light", 1.6), Limit("peer", 1.0))
_HEADLINES = ("sum", "sum_backward", "max", "max_backward")
_POWER_LAW_HEADLINES = ("softmax", "softmax_backward")


def _shapes(operation: str, limits: tuple[Limit, ...] = _AHEAD, cliff: float = 1.2) -> tuple[Row, ...]:
    """The same number of rows on ids of every kind; none may be slower than uniform ones by more than a factor."""
    uniform = Segment(operation=operation, **_LARGE)
    shown = operation in _HEADLINES
    return (
        Row(uniform, headline=shown),
        Row(
            replace(uniform, ids="power law"),
            limits=(*limits, *no_cliff(uniform, 1.2)),
            headline=shown or operation in _POWER_LAW_HEADLINES,
        ),
        Row(replace(uniform, ids="half"), limits=no_cliff(uniform, cliff)),
        Row(replace(uniform, ids="all"), limits=no_cliff(uniform, cliff), headline=shown),
        Row(replace(uniform, ids="64"), limits=no_cliff(uniform, 1.2)),
    )


def _every_other(but: Sequence[Row], backend: str, **problem: Any) -> tuple[Row, ...]:
    """A row for each operator that has none among `but`; there is one gather."""
    seen = {row.case.operator for row in but}
    pairs = [(form, name) for form in FORMS for name in DEFINITIONS if form == "unsorted" or name != "gather"]
    cases = [Segment(operation=name, form=form, **problem) for form, name in pairs]
    return tuple(Row(case, backend) for case in cases if case.operator not in seen)


_NAMED = (
    *_shapes("max_backward", limits=(*us(245), *_AHEAD), cliff=1.1),
    Row(Segment(operation="max_backward", **_LARGE, ids="power law", element="f64"), limits=us(450)),
    Row(_LITTLE_MAX, limits=us(26), headline=True),
    Row(replace(_LITTLE_MAX, ids="power law"), limits=us(26)),
    Row(replace(_LITTLE_MAX, ids="all"), limits=no_cliff(_LITTLE_MAX)),
    Row(_FEW_MAX, limits=us(215), headline=True),
    Row(replace(_FEW_MAX, ids="half"), limits=no_cliff(_FEW_MAX)),
    Row(_TOKENS_MAX, limits=(Limit("light", 1.5),), headline=True),
    Row(replace(_TOKENS_MAX, ids="half"), limits=no_cliff(_TOKENS_MAX)),
    Row(replace(_TOKENS_MAX, ids="all"), limits=no_cliff(_TOKENS_MAX)),
    *_shapes("max"),
    Row(Segment(operation="max", **_LARGE, ids="power law", element="f64"), limits=FORWARD),
    Row(Segment(operation="max", **_LITTLE), limits=FORWARD),
    Row(Segment(operation="max", **_FEW), limits=FORWARD),
    Row(Segment(operation="max", **_TOKENS), limits=FORWARD),
    Row(Segment(operation="max", **_HUGE), limits=_AHEAD, headline=True),
    *_shapes("sum"),
    *_shapes("sum_backward"),
    *_shapes("mean"),
    *_shapes("mean_backward"),
    Row(Segment(operation="sum", **_TOKENS, ids="power law"), limits=_AHEAD, headline=True),
    Row(Segment(operation="sum_backward", **_TOKENS, ids="power law"), limits=_AHEAD),
    Row(Segment(operation="sum", **_LARGE, form="sorted", ids="power law"), limits=_AHEAD),
    Row(Segment(operation="sum", **_LARGE, form="csr", ids="power law", index="i64"), limits=_AHEAD, headline=True),
    Row(Segment(operation="prod", **_LARGE, ids="power law"), limits=NO_SLOWER),
    Row(Segment(operation="prod_backward", **_LARGE, ids="power law"), limits=NO_SLOWER),
    *_shapes("logsumexp", limits=NO_SLOWER),
    Row(Segment(operation="logsumexp_backward", **_LARGE, ids="power law"), limits=NO_SLOWER),
    *_shapes("softmax", limits=NO_SLOWER),
    *_shapes("softmax_backward", limits=NO_SLOWER),
    Row(Segment(operation="max_with_arg", **_LARGE, ids="power law"), limits=NO_SLOWER),
    Row(Segment(operation="max_with_arg_backward", **_LARGE, ids="power law"), limits=NO_SLOWER),
    Row(Segment(operation="max_even_backward", **_LARGE, ids="power law"), limits=NO_SLOWER),
    Row(Segment(operation="max", **_LARGE, ids="power law", empty_value=0)),
)

# Where a row's segment is looked up among offsets.
_LOOKED_UP = (
    Row(Segment(operation="sum_backward", **_LARGE, form="csr", ids="power law", index="i64"), limits=NO_SLOWER),
    Row(Segment(operation="mean_backward", **_LARGE, form="csr"), limits=NO_SLOWER),
    Row(Segment(operation="sum_backward", **_LINE, form="csr"), limits=NO_SLOWER),
)
CUDA = (*_NAMED, *_every_other(_NAMED, "cuda", **_MIDDLE), *_LOOKED_UP)

_CPU_ROWS: dict[str, Any] = dict(rows=100_000, columns=64, segments=10_000)
_CPU_MIDDLE: dict[str, Any] = dict(rows=20_000, columns=32, segments=2_000)
_TEN_TIMES_AS_FAST = (Limit("peer", 0.1),)

_CPU_NAMED = (
    on_cpu(Segment(operation="max_backward", **_CPU_ROWS), _TEN_TIMES_AS_FAST),
    on_cpu(Segment(operation="max_backward", **_CPU_ROWS, ids="power law"), _TEN_TIMES_AS_FAST),
    on_cpu(Segment(operation="max_backward", **_CPU_ROWS, element="bf16"), _TEN_TIMES_AS_FAST),
    on_cpu(Segment(operation="max", **_CPU_ROWS), NO_SLOWER),
    *(
        on_cpu(Segment(operation=operation, **_CPU_ROWS, ids="power law", element=element), NO_SLOWER)
        for element in ("f32", "bf16")
        for name in ("sum", "mean", "logsumexp", "softmax")
        for operation in (name, f"{name}_backward")
    ),
    on_cpu(Segment(operation="max", **_CPU_ROWS, ids="power law", empty_value=0)),
)
CPU = (*_CPU_NAMED, *_every_other(_CPU_NAMED, "cpu", **_CPU_MIDDLE))
