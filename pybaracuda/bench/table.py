# SPDX-License-Identifier: Apache-2.0
"""Every row of the benchmark, as data. A new row, or a new operator's first row, is an entry here and nothing else."""

from __future__ import annotations

from typing import Any

from .affine_grid import AffineGrid, AffineGridBackward
from .case import Case, Limit, Row
from .dequantize import Dequantize, DequantizeBackward
from .grid_sample import GridSample, GridSampleBackward
from .pad import Pad, PadBackward
from .roi_align import RoiAlign, RoiAlignBackward
from .segment import SegmentMax, SegmentMaxBackward


def _us(microseconds: float) -> tuple[Limit, ...]:
    return (Limit("us", microseconds, "H100"),)


# Pure copies, pure copies of small planes, and forwards.
_COPY = (Limit("copy", 1.05),)
_SMALL_COPY = (Limit("copy", 1.2),)
_FORWARD = (Limit("peer", 1.0), Limit("light", 2.0))


def _no_cliff(case: Case) -> tuple[Limit, ...]:
    return (Limit("row", 1.1, Row(case).name),)


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

_PAD = (
    Row(PadBackward(**_IMAGES), limits=_COPY, headline=True),
    Row(PadBackward(**_IMAGES, element="f16"), limits=_COPY),
    Row(PadBackward(**_SMALL_PLANES, element="bf16"), limits=_SMALL_COPY, headline=True),
    Row(PadBackward(**_VOLUMES, element="f64"), limits=_COPY),
    Row(PadBackward(**_IMAGES, mode="reflect"), headline=True),
    Row(PadBackward(**_IMAGES, mode="replicate"), headline=True),
    Row(PadBackward(**_IMAGES, mode="circular"), headline=True),
    Row(Pad(**_IMAGES)),
    Row(Pad(**_SMALL_PLANES, element="bf16")),
)

# -------------------------------------------------------------------------------------------------------- CUDA: segment

_LARGE: dict[str, Any] = dict(rows=1_000_000, columns=64, segments=100_000)
_LITTLE: dict[str, Any] = dict(rows=20_000, columns=64, segments=2_000)
_FEW: dict[str, Any] = dict(rows=4_000_000, columns=16, segments=64)
_TOKENS: dict[str, Any] = dict(rows=500_000, columns=128, segments=100_000, element="bf16")

_SEGMENT = (
    Row(SegmentMaxBackward(**_LARGE, ids="power law"), limits=_us(245), headline=True),
    Row(SegmentMaxBackward(**_LARGE, ids="power law", element="f64"), limits=_us(450)),
    Row(SegmentMaxBackward(**_LARGE), headline=True),
    Row(SegmentMaxBackward(**_LARGE, ids="half"), limits=_no_cliff(SegmentMaxBackward(**_LARGE))),
    Row(SegmentMaxBackward(**_LARGE, ids="all"), limits=_no_cliff(SegmentMaxBackward(**_LARGE)), headline=True),
    Row(SegmentMaxBackward(**_LITTLE), limits=_us(26), headline=True),
    Row(SegmentMaxBackward(**_LITTLE, ids="power law"), limits=_us(26)),
    Row(SegmentMaxBackward(**_LITTLE, ids="all"), limits=_no_cliff(SegmentMaxBackward(**_LITTLE))),
    Row(SegmentMaxBackward(**_FEW), limits=_us(215), headline=True),
    Row(SegmentMaxBackward(**_FEW, ids="half"), limits=_no_cliff(SegmentMaxBackward(**_FEW))),
    Row(SegmentMaxBackward(**_TOKENS), limits=(Limit("light", 1.5),), headline=True),
    Row(SegmentMaxBackward(**_TOKENS, ids="half"), limits=_no_cliff(SegmentMaxBackward(**_TOKENS))),
    Row(SegmentMaxBackward(**_TOKENS, ids="all"), limits=_no_cliff(SegmentMaxBackward(**_TOKENS))),
    Row(SegmentMax(**_LARGE, ids="power law"), limits=_FORWARD, headline=True),
    Row(SegmentMax(**_LARGE, ids="power law", element="f64"), limits=_FORWARD),
    Row(SegmentMax(**_LARGE), limits=_FORWARD),
    Row(SegmentMax(**_LARGE, ids="all"), limits=_FORWARD),
    Row(SegmentMax(**_LITTLE), limits=_FORWARD),
    Row(SegmentMax(**_FEW), limits=_FORWARD),
    Row(SegmentMax(**_TOKENS), limits=_FORWARD),
)

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
_CPU_ROWS: dict[str, Any] = dict(rows=100_000, columns=64, segments=10_000)
_CPU_ACTIVATIONS: dict[str, Any] = dict(shape=(8, 64, 128, 128), axis=1)

_TWICE_AS_FAST = (Limit("peer", 0.5),)
_TEN_TIMES_AS_FAST = (Limit("peer", 0.1),)
_NEAR_COPY = (Limit("light", 1 / 0.8), Limit("peer", 1.0))

_CPU_CASES: tuple[tuple[Case, tuple[Limit, ...]], ...] = (
    (RoiAlignBackward(**_CPU_ROI), (Limit("us", 3000),)),
    (RoiAlignBackward(**_CPU_ROI, element="bf16"), ()),
    (RoiAlign(**_CPU_ROI), (Limit("peer", 1.0),)),
    (GridSampleBackward(**_CPU_FLOW), _TWICE_AS_FAST),
    (GridSampleBackward(**_CPU_FLOW, kind="random"), _TWICE_AS_FAST),
    (GridSampleBackward(**_CPU_FLOW, element="bf16"), _TWICE_AS_FAST),
    (GridSample(**_CPU_FLOW), (Limit("peer", 1.0),)),
    (PadBackward(**_CPU_IMAGES), _NEAR_COPY),
    (PadBackward(**_CPU_IMAGES, element="bf16"), _NEAR_COPY),
    (PadBackward(**_CPU_IMAGES, mode="reflect"), ()),
    (PadBackward(**_CPU_IMAGES, mode="replicate"), ()),
    (PadBackward(**_CPU_IMAGES, mode="circular"), ()),
    (SegmentMaxBackward(**_CPU_ROWS), _TEN_TIMES_AS_FAST),
    (SegmentMaxBackward(**_CPU_ROWS, ids="power law"), _TEN_TIMES_AS_FAST),
    (SegmentMaxBackward(**_CPU_ROWS, element="bf16"), _TEN_TIMES_AS_FAST),
    (SegmentMax(**_CPU_ROWS), (Limit("peer", 1.0),)),
    (DequantizeBackward(**_CPU_ACTIVATIONS), _NEAR_COPY),
    (DequantizeBackward(**_CPU_ACTIVATIONS, element="bf16"), _NEAR_COPY),
    (Dequantize(**_CPU_ACTIVATIONS), (Limit("peer", 1.0),)),
    (AffineGridBackward(n=8, rows=128, columns=128), ()),
    (AffineGrid(n=8, rows=128, columns=128), ()),
)

_CPU = tuple(Row(case, "cpu", limits, headline=bool(limits)) for case, limits in _CPU_CASES)

ROWS: tuple[Row, ...] = (*_ROI_ALIGN, *_GRID_SAMPLE, *_PAD, *_SEGMENT, *_DEQUANTIZE, *_AFFINE_GRID, *_CPU)

# Large enough for every core of the CPU library.
WARM_UP: Case = DequantizeBackward(**_CPU_ACTIVATIONS)
