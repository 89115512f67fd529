# SPDX-License-Identifier: Apache-2.0
"""Every row of the benchmark, as data. A new row, or a new operator's first row, is an entry here and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verify.definitions.segment import DEFINITIONS

from .affine_grid import AffineGrid, AffineGridBackward
from .case import Case, Limit, Row
from .dequantize import Dequantize, DequantizeBackward
from .grid_sample import GridSample, GridSampleBackward
from .pad import Pad, PadBackward
from .roi_align import RoiAlign, RoiAlignBackward
from .segment import FORMS, Segment


def _us(microseconds: float) -> tuple[Limit, ...]:
    return (Limit("us", microseconds, "H100"),)


# Pure copies, pure copies of small planes, copies that add at the edges, those of small planes, and forwards.
_COPY = (Limit("copy", 1.05),)
_SMALL_COPY = (Limit("copy", 1.2),)
_FOLD_COPY = (Limit("copy", 1.06),)
_SMALL_FOLD_COPY = (Limit("copy", 1.3),)
_FORWARD = (Limit("peer", 1.0), Limit("light", 2.0))
_NO_SLOWER = (Limit("peer", 1.0),)


def _no_cliff(case: Case, factor: float = 1.1) -> tuple[Limit, ...]:
    return (Limit("row", factor, Row(case).name),)


# ------------------------------------------------------------------------------------------------------ CUDA: roi_align

# A detector's finest pyramid level, a backbone's last but one stage, and boxes that all lie on one small map.
_P2: dict[str, Any] = dict(n=2, c=256, h=200, w=304, boxes=1024, low=16, high=224, scale=1 / 4)
_C4: dict[str, Any] = dict(n=2, c=1024, h=50, w=76, boxes=512, low=32, high=512, scale=1 / 16, bins=14)
_HOT: dict[str, Any] = dict(n=1, c=256, h=32, w=32, boxes=1024, low=128, high=256, scale=1 / 8)

_ROI_ALIGN = (
    Row(RoiAlignBackward(**_P2), limits=_us(112), headline=True),
    Row(RoiAlignBackward(**_P2, sampling_ratio=0), limits=_us(120), headline=True),
    Row(RoiAlignBackward(**_C4), limits=_us(320), headline=True),
    Row(RoiAlignBackward(**_HOT), limits=_us(100), headline=True),
    Row(RoiAlignBackward(**_P2, element="f16"), limits=_us(90), headline=True),
    Row(RoiAlignBackward(**_P2, element="bf16"), limits=_us(90)),
    Row(RoiAlignBackward(**_P2, element="f64"), limits=_us(260)),
    Row(RoiAlign(**_P2), limits=_FORWARD, headline=True),
    Row(RoiAlign(**_P2, sampling_ratio=0), limits=_FORWARD),
    Row(RoiAlign(**_C4), limits=_FORWARD),
    Row(RoiAlign(**_HOT), limits=_FORWARD),
    Row(RoiAlign(**_P2, element="f16"), limits=_FORWARD),
    Row(RoiAlign(**_P2, element="bf16"), limits=_FORWARD),
    Row(RoiAlign(**_P2, element="f64"), limits=_FORWARD),
)

# ---------------------------------------------------------------------------------------------------- CUDA: grid_sample

_FLOW: dict[str, Any] = dict(n=4, c=64, ih=256, iw=256, oh=256, ow=256)
_RGB: dict[str, Any] = dict(n=8, c=3, ih=1024, iw=1024, oh=1024, ow=1024)
_DEEP: dict[str, Any] = dict(n=8, c=256, ih=64, iw=64, oh=64, ow=64)
# EG3D's three planes for four images, and Deformable DETR: 8 images by 8 heads, 300 queries by 4 points.
_TRI_PLANES: dict[str, Any] = dict(n=12, c=32, ih=256, iw=256, oh=1, ow=98304, kind="random")
_DETR: dict[str, Any] = dict(n=64, c=32, ih=100, iw=134, oh=300, ow=4, kind="random")
_ONE_POINT: dict[str, Any] = dict(n=8, c=64, ih=64, iw=64, oh=64, ow=64, kind="one point")

_GRID_SAMPLE = (
    Row(GridSampleBackward(**_FLOW), limits=_us(118), headline=True),
    Row(GridSampleBackward(**_FLOW, element="f16"), limits=_us(85), headline=True),
    Row(GridSampleBackward(**_FLOW, element="bf16")),
    Row(GridSampleBackward(**_FLOW, element="f64"), limits=_us(240)),
    Row(GridSampleBackward(**_FLOW, kind="random"), limits=_us(195), headline=True),
    Row(GridSampleBackward(**_RGB), limits=_us(450), headline=True),
    Row(GridSampleBackward(**_DEEP), limits=_us(70), headline=True),
    Row(GridSampleBackward(**_DEEP, kind="random")),
    Row(GridSampleBackward(**_TRI_PLANES), limits=_us(770), headline=True),
    Row(GridSampleBackward(**_DETR), limits=_us(105), headline=True),
    Row(GridSampleBackward(**_ONE_POINT), limits=_us(95), headline=True),
    Row(GridSample(**_FLOW), limits=_FORWARD, headline=True),
    Row(GridSample(**_FLOW, element="f16"), limits=_FORWARD),
    Row(GridSample(**_FLOW, element="bf16"), limits=_FORWARD),
    Row(GridSample(**_FLOW, element="f64"), limits=_FORWARD),
    Row(GridSample(**_FLOW, kind="random"), limits=_FORWARD),
    Row(GridSample(**_RGB), limits=_FORWARD),
    Row(GridSample(**_DEEP), limits=_FORWARD),
    Row(GridSample(**_TRI_PLANES), limits=_FORWARD),
    Row(GridSample(**_DETR), limits=_FORWARD),
    Row(GridSample(**_ONE_POINT), limits=_FORWARD),
)

# ------------------------------------------------------------------------------------------------------------ CUDA: pad

_IMAGES: dict[str, Any] = dict(shape=(8, 64, 512, 512), width=3)
_SMALL_PLANES: dict[str, Any] = dict(shape=(256, 512, 14, 14), width=1)
_VOLUMES: dict[str, Any] = dict(shape=(4, 32, 32, 64, 128), width=1, axes=3)
# Feature maps of a network's last and first stage, and images a quarter as large.
_LAST_STAGE: dict[str, Any] = dict(shape=(128, 512, 7, 7), width=1)
_FIRST_STAGE: dict[str, Any] = dict(shape=(16, 64, 56, 56), width=1)
_QUARTER_IMAGES: dict[str, Any] = dict(shape=(8, 64, 256, 256), width=3)
# Moved by a few pixels, as augmentation does; and 8-bit pictures, which it works on.
_SHIFTED: dict[str, Any] = dict(shape=(8, 64, 256, 256), width=-3, after=3)
_PICTURES: dict[str, Any] = dict(shape=(256, 3, 224, 224), width=4, element="b8")
# Those whose gradient adds up.
_FOLDS = ("reflect", "replicate", "circular", "symmetric")

_PAD = (
    Row(PadBackward(**_IMAGES), limits=_COPY, headline=True),
    Row(PadBackward(**_IMAGES, element="f16"), limits=_COPY),
    Row(PadBackward(**_SMALL_PLANES, element="bf16"), limits=_SMALL_COPY, headline=True),
    Row(PadBackward(**_VOLUMES, element="f64"), limits=_COPY),
    *(Row(PadBackward(**_IMAGES, mode=mode), limits=_FOLD_COPY, headline=True) for mode in _FOLDS),
    *(Row(PadBackward(**_LAST_STAGE, mode=mode), limits=_SMALL_FOLD_COPY) for mode in _FOLDS),
    *(Row(PadBackward(**_FIRST_STAGE, mode=mode), limits=_SMALL_FOLD_COPY) for mode in _FOLDS),
    Row(PadBackward(**_SHIFTED)),
    Row(Pad(**_IMAGES)),
    Row(Pad(**_SMALL_PLANES, element="bf16")),
    *(Row(Pad(**_QUARTER_IMAGES, mode=mode), limits=_FORWARD) for mode in _FOLDS),
    Row(Pad(**_SHIFTED)),
    Row(Pad(**_PICTURES), limits=_FORWARD),
)

# -------------------------------------------------------------------------------------------------------- CUDA: segment

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
            limits=(*limits, *_no_cliff(uniform, 1.2)),
            headline=shown or operation in _POWER_LAW_HEADLINES,
        ),
        Row(replace(uniform, ids="half"), limits=_no_cliff(uniform, cliff)),
        Row(replace(uniform, ids="all"), limits=_no_cliff(uniform, cliff), headline=shown),
        Row(replace(uniform, ids="64"), limits=_no_cliff(uniform, 1.2)),
    )


def _every_segment_operator(but: Sequence[Row], backend: str, **problem: Any) -> tuple[Row, ...]:
    """A row for each operator that has none among `but`; there is one gather."""
    seen = {row.case.operator for row in but}
    pairs = [(form, name) for form in FORMS for name in DEFINITIONS if form == "unsorted" or name != "gather"]
    cases = [Segment(operation=name, form=form, **problem) for form, name in pairs]
    return tuple(Row(case, backend) for case in cases if case.operator not in seen)


_SEGMENT_NAMED = (
    *_shapes("max_backward", limits=(*_us(245), *_AHEAD), cliff=1.1),
    Row(Segment(operation="max_backward", **_LARGE, ids="power law", element="f64"), limits=_us(450)),
    Row(_LITTLE_MAX, limits=_us(26), headline=True),
    Row(replace(_LITTLE_MAX, ids="power law"), limits=_us(26)),
    Row(replace(_LITTLE_MAX, ids="all"), limits=_no_cliff(_LITTLE_MAX)),
    Row(_FEW_MAX, limits=_us(215), headline=True),
    Row(replace(_FEW_MAX, ids="half"), limits=_no_cliff(_FEW_MAX)),
    Row(_TOKENS_MAX, limits=(Limit("light", 1.5),), headline=True),
    Row(replace(_TOKENS_MAX, ids="half"), limits=_no_cliff(_TOKENS_MAX)),
    Row(replace(_TOKENS_MAX, ids="all"), limits=_no_cliff(_TOKENS_MAX)),
    *_shapes("max"),
    Row(Segment(operation="max", **_LARGE, ids="power law", element="f64"), limits=_FORWARD),
    Row(Segment(operation="max", **_LITTLE), limits=_FORWARD),
    Row(Segment(operation="max", **_FEW), limits=_FORWARD),
    Row(Segment(operation="max", **_TOKENS), limits=_FORWARD),
    Row(Segment(operation="max", **_HUGE), limits=_AHEAD, headline=True),
    *_shapes("sum"),
    *_shapes("sum_backward"),
    *_shapes("mean"),
    *_shapes("mean_backward"),
    Row(Segment(operation="sum", **_TOKENS, ids="power law"), limits=_AHEAD, headline=True),
    Row(Segment(operation="sum_backward", **_TOKENS, ids="power law"), limits=_AHEAD),
    Row(Segment(operation="sum", **_LARGE, form="sorted", ids="power law"), limits=_AHEAD),
    Row(Segment(operation="sum", **_LARGE, form="csr", ids="power law", index="i64"), limits=_AHEAD, headline=True),
    Row(Segment(operation="prod", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    Row(Segment(operation="prod_backward", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    *_shapes("logsumexp", limits=_NO_SLOWER),
    Row(Segment(operation="logsumexp_backward", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    *_shapes("softmax", limits=_NO_SLOWER),
    *_shapes("softmax_backward", limits=_NO_SLOWER),
    Row(Segment(operation="max_with_arg", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    Row(Segment(operation="max_with_arg_backward", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    Row(Segment(operation="max_even_backward", **_LARGE, ids="power law"), limits=_NO_SLOWER),
    Row(Segment(operation="max", **_LARGE, ids="power law", empty_value=0)),
)

# Where a row's segment is looked up among offsets.
_SEGMENT_LOOKED_UP = (
    Row(Segment(operation="sum_backward", **_LARGE, form="csr", ids="power law", index="i64"), limits=_NO_SLOWER),
    Row(Segment(operation="mean_backward", **_LARGE, form="csr"), limits=_NO_SLOWER),
    Row(Segment(operation="sum_backward", **_LINE, form="csr"), limits=_NO_SLOWER),
)
_SEGMENT = (*_SEGMENT_NAMED, *_every_segment_operator(_SEGMENT_NAMED, "cuda", **_MIDDLE), *_SEGMENT_LOOKED_UP)

# ----------------------------------------------------------------------------------------------------- CUDA: dequantize

_ACTIVATIONS: dict[str, Any] = dict(shape=(32, 256, 128, 128), axis=1)
_WEIGHTS: dict[str, Any] = dict(shape=(8192, 8192), axis=0)
_LAST_AXIS: dict[str, Any] = dict(shape=(8192, 8192), axis=1)

_DEQUANTIZE = (
    Row(DequantizeBackward(**_ACTIVATIONS), limits=_COPY, headline=True),
    Row(DequantizeBackward(**_ACTIVATIONS, element="bf16"), limits=_COPY, headline=True),
    Row(DequantizeBackward(**_WEIGHTS, element="f16"), limits=_COPY, headline=True),
    Row(DequantizeBackward(**_LAST_AXIS), limits=_COPY, headline=True),
    Row(Dequantize(**_ACTIVATIONS), limits=_FORWARD),
    Row(Dequantize(**_ACTIVATIONS, element="bf16"), limits=_FORWARD, headline=True),
    Row(Dequantize(**_WEIGHTS, element="f16"), limits=_FORWARD),
    Row(Dequantize(**_LAST_AXIS), limits=_FORWARD),
)

_AFFINE_GRID = (
    Row(AffineGridBackward(n=8, rows=512, columns=512)),
    Row(AffineGrid(n=8, rows=512, columns=512)),
)

# ------------------------------------------------------------------------------------------------------------------ CPU

_CPU_ROI: dict[str, Any] = dict(n=1, c=64, h=100, w=152, boxes=256, low=16, high=224, scale=1 / 4)
_CPU_FLOW: dict[str, Any] = dict(n=2, c=32, ih=128, iw=128, oh=128, ow=128)
_CPU_IMAGES: dict[str, Any] = dict(shape=(8, 32, 128, 128), width=1)
_CPU_SHIFTED: dict[str, Any] = dict(shape=(8, 32, 128, 128), width=-3, after=3)
_CPU_ROWS: dict[str, Any] = dict(rows=100_000, columns=64, segments=10_000)
_CPU_MIDDLE: dict[str, Any] = dict(rows=20_000, columns=32, segments=2_000)
_CPU_ACTIVATIONS: dict[str, Any] = dict(shape=(8, 64, 128, 128), axis=1)

_TWICE_AS_FAST = (Limit("peer", 0.5),)
_TEN_TIMES_AS_FAST = (Limit("peer", 0.1),)
_THRICE_PYTORCH = (Limit("peer", 1 / 3, "PyTorch"),)
_NEAR_COPY = (Limit("light", 1 / 0.8), Limit("peer", 1.0))

_CPU_CASES: tuple[tuple[Case, tuple[Limit, ...]], ...] = (
    (RoiAlignBackward(**_CPU_ROI), (Limit("us", 3000),)),
    (RoiAlignBackward(**_CPU_ROI, element="bf16"), ()),
    (RoiAlign(**_CPU_ROI), _NO_SLOWER),
    (GridSampleBackward(**_CPU_FLOW), _TWICE_AS_FAST),
    (GridSampleBackward(**_CPU_FLOW, kind="random"), _TWICE_AS_FAST),
    (GridSampleBackward(**_CPU_FLOW, element="bf16"), _TWICE_AS_FAST),
    (GridSample(**_CPU_FLOW), _NO_SLOWER),
    (PadBackward(**_CPU_IMAGES), _NEAR_COPY),
    (PadBackward(**_CPU_IMAGES, element="bf16"), _NEAR_COPY),
    (PadBackward(**_CPU_IMAGES, mode="reflect"), _THRICE_PYTORCH),
    (PadBackward(**_CPU_IMAGES, mode="replicate"), _THRICE_PYTORCH),
    (PadBackward(**_CPU_IMAGES, mode="circular"), (Limit("peer", 1 / 8, "PyTorch"),)),
    (PadBackward(**_CPU_IMAGES, mode="symmetric"), ()),
    (PadBackward(**_CPU_SHIFTED), ()),
    *((Pad(**_CPU_IMAGES, mode=mode), ()) for mode in ("constant", *_FOLDS)),
    (Pad(**_CPU_SHIFTED), ()),
    (Pad(**_CPU_IMAGES, element="b8"), ()),
    (Pad(**_CPU_IMAGES, element="b32"), ()),
    (Segment(operation="max_backward", **_CPU_ROWS), _TEN_TIMES_AS_FAST),
    (Segment(operation="max_backward", **_CPU_ROWS, ids="power law"), _TEN_TIMES_AS_FAST),
    (Segment(operation="max_backward", **_CPU_ROWS, element="bf16"), _TEN_TIMES_AS_FAST),
    (Segment(operation="max", **_CPU_ROWS), _NO_SLOWER),
    *(
        (Segment(operation=operation, **_CPU_ROWS, ids="power law", element=element), _NO_SLOWER)
        for element in ("f32", "bf16")
        for name in ("sum", "mean", "logsumexp", "softmax")
        for operation in (name, f"{name}_backward")
    ),
    (Segment(operation="max", **_CPU_ROWS, ids="power law", empty_value=0), ()),
    (DequantizeBackward(**_CPU_ACTIVATIONS), _NEAR_COPY),
    (DequantizeBackward(**_CPU_ACTIVATIONS, element="bf16"), _NEAR_COPY),
    (Dequantize(**_CPU_ACTIVATIONS), _NO_SLOWER),
    (AffineGridBackward(n=8, rows=128, columns=128), ()),
    (AffineGrid(n=8, rows=128, columns=128), ()),
)

_CPU_NAMED = tuple(Row(case, "cpu", limits, headline=bool(limits)) for case, limits in _CPU_CASES)
_CPU = (*_CPU_NAMED, *_every_segment_operator(_CPU_NAMED, "cpu", **_CPU_MIDDLE))

ROWS: tuple[Row, ...] = (*_ROI_ALIGN, *_GRID_SAMPLE, *_PAD, *_SEGMENT, *_DEQUANTIZE, *_AFFINE_GRID, *_CPU)

# Large enough for every core of the CPU library.
WARM_UP: Case = DequantizeBackward(**_CPU_ACTIVATIONS)
