# SPDX-License-Identifier: Apache-2.0
"""Gradient kernels with the same bits on every run, thread count, GPU and backend.

Array functions take NumPy, torch, CuPy, JAX and cuda.core arrays and answer the same kind on the same device and
stream: host arrays run on the CPU library, device arrays on the CUDA library. Plans underneath also take raw pointers.
Only the list of names belongs in this file.

Notes on arrays, for every function:

- Nothing is copied but what a function's text names: strided inputs where a kernel takes none, and conversions.
- Kinds may be mixed on one device; the result has the first array argument's kind. Objects that speak only DLPack or
  the CUDA array interface give NumPy arrays on the host and cuda.core views on a device, which need pybaracuda[cuda].
- An output that shares an element with another array, as the kernel sees them, or with itself, is refused. Gaps between
  strides do not count; an input that is converted or copied first is other memory, and so is an output that is rounded
  afterwards; only the elementwise `dequantize_per_channel_backward` may write where it reads, to the very same array.
- Whatever a thread does with subnormal numbers, conversions of arrays and of scalars keep them.
- A stream orders conversions and outputs too. On the host there is none.
- torch: tensors that require grad are read as ``detach()`` would give them, and no gradient function is recorded.
- JAX: concrete arrays only, no ``out=``. The host waits for the inputs, and on a GPU for the result.
- Every function and plan may be called from any number of threads, and in a forked child, whatever other threads were
  doing as it was forked.
- Ctrl-C, or any signal handler that raises, ends a long call on the CPU too, within about 0.1 s; its outputs are then
  undefined.
"""

from __future__ import annotations

# First of all: from here on a fork waits for the import to end.
from . import _forking  # noqa: F401  # isort: skip

from typing import TYPE_CHECKING

from ._check import check
from ._descriptor import PlanPreference, PrecisionGuarantee, Sku
from ._errors import (
    BackendUnavailableError,
    BaracudaError,
    BufferTooSmallError,
    InternalError,
    InvalidProblemError,
    MisalignedOperandError,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from ._library import backend_available, backend_problem, cmake_dir, include_dir, last_path, library_path, raw
from ._plan import BoundCall, Plan
from ._tensor_spec import TensorSpec
from .affine_grid import (
    AffineGrid3dBackwardDescriptor,
    AffineGrid3dBackwardPlan,
    AffineGrid3dDescriptor,
    AffineGrid3dPlan,
    AffineGridBackwardDescriptor,
    AffineGridBackwardPlan,
    AffineGridDescriptor,
    AffineGridPlan,
    affine_grid,
    affine_grid_backward,
)
from .avg_pool import (
    AdaptiveAvgPoolBackwardDescriptor,
    AdaptiveAvgPoolBackwardPlan,
    AdaptiveAvgPoolDescriptor,
    AdaptiveAvgPoolPlan,
    AvgPoolBackwardDescriptor,
    AvgPoolBackwardPlan,
    AvgPoolDescriptor,
    AvgPoolPlan,
    adaptive_avg_pool,
    adaptive_avg_pool_backward,
    avg_pool,
    avg_pool_backward,
)
from .ctc_loss import (
    CtcLossBackwardDescriptor,
    CtcLossBackwardPlan,
    CtcLossDescriptor,
    CtcLossPlan,
    ctc_loss,
    ctc_loss_backward,
)
from .deform_im2col import (
    DeformIm2colBackwardDescriptor,
    DeformIm2colBackwardPlan,
    DeformIm2colDescriptor,
    DeformIm2colOffsetBackwardDescriptor,
    DeformIm2colOffsetBackwardPlan,
    DeformIm2colPlan,
    deform_im2col,
    deform_im2col_backward,
    deform_im2col_offset_backward,
)
from .dequantize import (
    DequantizePerChannelBackwardDescriptor,
    DequantizePerChannelBackwardPlan,
    DequantizePerChannelDescriptor,
    DequantizePerChannelPlan,
    dequantize_per_channel,
    dequantize_per_channel_backward,
)
from .fractional_max_pool import (
    FractionalMaxPoolBackwardDescriptor,
    FractionalMaxPoolBackwardPlan,
    FractionalMaxPoolDescriptor,
    FractionalMaxPoolPlan,
    fractional_max_pool,
    fractional_max_pool_backward,
)
from .grid_sample import (
    GridSampleBackwardDescriptor,
    GridSampleBackwardPlan,
    GridSampleDescriptor,
    GridSamplePlan,
    grid_sample,
    grid_sample_backward,
)
from .grid_sample_3d import (
    GridSample3dBackwardDescriptor,
    GridSample3dBackwardPlan,
    GridSample3dDescriptor,
    GridSample3dPlan,
)
from .interpolate import (
    InterpolateBackwardDescriptor,
    InterpolateBackwardPlan,
    InterpolateDescriptor,
    InterpolatePlan,
    interpolate,
    interpolate_backward,
)
from .max_pool import (
    AdaptiveMaxPoolBackwardDescriptor,
    AdaptiveMaxPoolBackwardPlan,
    AdaptiveMaxPoolDescriptor,
    AdaptiveMaxPoolPlan,
    MaxPoolBackwardDescriptor,
    MaxPoolBackwardPlan,
    MaxPoolDescriptor,
    MaxPoolPlan,
    adaptive_max_pool,
    adaptive_max_pool_backward,
    max_pool,
    max_pool_backward,
)
from .max_unpool import (
    MaxUnpoolBackwardDescriptor,
    MaxUnpoolBackwardPlan,
    MaxUnpoolDescriptor,
    MaxUnpoolPlan,
    max_unpool,
    max_unpool_backward,
)
from .nms import (
    NmsDescriptor,
    NmsPlan,
    NmsWithScoresDescriptor,
    NmsWithScoresPlan,
    batched_nms,
    nms,
    nms_sorted,
)
from .pad import PadBackwardDescriptor, PadBackwardPlan, PadDescriptor, PadPlan, pad, pad_backward
from .pixel_shuffle import (
    PixelShuffleDescriptor,
    PixelShufflePlan,
    PixelUnshuffleDescriptor,
    PixelUnshufflePlan,
    pixel_shuffle,
    pixel_unshuffle,
)
from .ps_roi import (
    PsRoiAlignBackwardDescriptor,
    PsRoiAlignBackwardPlan,
    PsRoiAlignDescriptor,
    PsRoiAlignPlan,
    PsRoiPoolBackwardDescriptor,
    PsRoiPoolBackwardPlan,
    PsRoiPoolDescriptor,
    PsRoiPoolPlan,
    ps_roi_align,
    ps_roi_align_backward,
    ps_roi_pool,
    ps_roi_pool_backward,
)
from .roi_align import (
    RoiAlignBackwardDescriptor,
    RoiAlignBackwardPlan,
    RoiAlignBoxesBackwardDescriptor,
    RoiAlignBoxesBackwardPlan,
    RoiAlignDescriptor,
    RoiAlignPlan,
    roi_align,
    roi_align_backward,
    roi_align_boxes_backward,
)
from .roi_align_3d import (
    RoiAlign3dBackwardDescriptor,
    RoiAlign3dBackwardPlan,
    RoiAlign3dDescriptor,
    RoiAlign3dPlan,
    roi_align_3d,
    roi_align_3d_backward,
)
from .roi_align_levels import (
    RoiAlignLevelsBackwardDescriptor,
    RoiAlignLevelsBackwardPlan,
    RoiAlignLevelsDescriptor,
    RoiAlignLevelsPlan,
    roi_align_levels,
    roi_align_levels_backward,
)
from .roi_pool import (
    RoiPoolBackwardDescriptor,
    RoiPoolBackwardPlan,
    RoiPoolDescriptor,
    RoiPoolPlan,
    roi_pool,
    roi_pool_backward,
)
from .segment import (
    SegmentDescriptor,
    SegmentPlan,
    SegmentSelectionDescriptor,
    SegmentSelectionPlan,
    UnsortedSegmentMaxBackwardDescriptor,
    UnsortedSegmentMaxBackwardPlan,
    UnsortedSegmentMaxDescriptor,
    UnsortedSegmentMaxPlan,
    gather_csr,
    segment_csr,
    segment_csr_backward,
    segment_gather,
    segment_logsumexp,
    segment_logsumexp_backward,
    segment_max,
    segment_max_backward,
    segment_mean,
    segment_mean_backward,
    segment_min,
    segment_min_backward,
    segment_prod,
    segment_prod_backward,
    segment_softmax,
    segment_softmax_backward,
    segment_sum,
    segment_sum_backward,
    unsorted_segment_max,
    unsorted_segment_max_backward,
)

__all__ = [
    "AdaptiveAvgPoolBackwardDescriptor",
    "AdaptiveAvgPoolBackwardPlan",
    "AdaptiveAvgPoolDescriptor",
    "AdaptiveAvgPoolPlan",
    "AdaptiveMaxPoolBackwardDescriptor",
    "AdaptiveMaxPoolBackwardPlan",
    "AdaptiveMaxPoolDescriptor",
    "AdaptiveMaxPoolPlan",
    "AffineGrid3dBackwardDescriptor",
    "AffineGrid3dBackwardPlan",
    "AffineGrid3dDescriptor",
    "AffineGrid3dPlan",
    "AffineGridBackwardDescriptor",
    "AffineGridBackwardPlan",
    "AffineGridDescriptor",
    "AffineGridPlan",
    "AvgPoolBackwardDescriptor",
    "AvgPoolBackwardPlan",
    "AvgPoolDescriptor",
    "AvgPoolPlan",
    "BackendUnavailableError",
    "BaracudaError",
    "BoundCall",
    "BufferTooSmallError",
    "CtcLossBackwardDescriptor",
    "CtcLossBackwardPlan",
    "CtcLossDescriptor",
    "CtcLossPlan",
    "DeformIm2colBackwardDescriptor",
    "DeformIm2colBackwardPlan",
    "DeformIm2colDescriptor",
    "DeformIm2colOffsetBackwardDescriptor",
    "DeformIm2colOffsetBackwardPlan",
    "DeformIm2colPlan",
    "DequantizePerChannelBackwardDescriptor",
    "DequantizePerChannelBackwardPlan",
    "DequantizePerChannelDescriptor",
    "DequantizePerChannelPlan",
    "FractionalMaxPoolBackwardDescriptor",
    "FractionalMaxPoolBackwardPlan",
    "FractionalMaxPoolDescriptor",
    "FractionalMaxPoolPlan",
    "GridSample3dBackwardDescriptor",
    "GridSample3dBackwardPlan",
    "GridSample3dDescriptor",
    "GridSample3dPlan",
    "GridSampleBackwardDescriptor",
    "GridSampleBackwardPlan",
    "GridSampleDescriptor",
    "GridSamplePlan",
    "InternalError",
    "InterpolateBackwardDescriptor",
    "InterpolateBackwardPlan",
    "InterpolateDescriptor",
    "InterpolatePlan",
    "InvalidProblemError",
    "MaxPoolBackwardDescriptor",
    "MaxPoolBackwardPlan",
    "MaxPoolDescriptor",
    "MaxPoolPlan",
    "MaxUnpoolBackwardDescriptor",
    "MaxUnpoolBackwardPlan",
    "MaxUnpoolDescriptor",
    "MaxUnpoolPlan",
    "MisalignedOperandError",
    "NmsDescriptor",
    "NmsPlan",
    "NmsWithScoresDescriptor",
    "NmsWithScoresPlan",
    "PadBackwardDescriptor",
    "PadBackwardPlan",
    "PadDescriptor",
    "PadPlan",
    "PixelShuffleDescriptor",
    "PixelShufflePlan",
    "PixelUnshuffleDescriptor",
    "PixelUnshufflePlan",
    "Plan",
    "PlanPreference",
    "PrecisionGuarantee",
    "PsRoiAlignBackwardDescriptor",
    "PsRoiAlignBackwardPlan",
    "PsRoiAlignDescriptor",
    "PsRoiAlignPlan",
    "PsRoiPoolBackwardDescriptor",
    "PsRoiPoolBackwardPlan",
    "PsRoiPoolDescriptor",
    "PsRoiPoolPlan",
    "RoiAlign3dBackwardDescriptor",
    "RoiAlign3dBackwardPlan",
    "RoiAlign3dDescriptor",
    "RoiAlign3dPlan",
    "RoiAlignBackwardDescriptor",
    "RoiAlignBackwardPlan",
    "RoiAlignBoxesBackwardDescriptor",
    "RoiAlignBoxesBackwardPlan",
    "RoiAlignDescriptor",
    "RoiAlignLevelsBackwardDescriptor",
    "RoiAlignLevelsBackwardPlan",
    "RoiAlignLevelsDescriptor",
    "RoiAlignLevelsPlan",
    "RoiAlignPlan",
    "RoiPoolBackwardDescriptor",
    "RoiPoolBackwardPlan",
    "RoiPoolDescriptor",
    "RoiPoolPlan",
    "SegmentDescriptor",
    "SegmentPlan",
    "SegmentSelectionDescriptor",
    "SegmentSelectionPlan",
    "Sku",
    "TensorSpec",
    "UnsortedSegmentMaxBackwardDescriptor",
    "UnsortedSegmentMaxBackwardPlan",
    "UnsortedSegmentMaxDescriptor",
    "UnsortedSegmentMaxPlan",
    "UnsupportedError",
    "WorkspaceTooSmallError",
    "__version__",
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "adaptive_max_pool_backward",
    "affine_grid",
    "affine_grid_backward",
    "avg_pool",
    "avg_pool_backward",
    "backend_available",
    "backend_problem",
    "batched_nms",
    "check",
    "cmake_dir",
    "ctc_loss",
    "ctc_loss_backward",
    "deform_im2col",
    "deform_im2col_backward",
    "deform_im2col_offset_backward",
    "dequantize_per_channel",
    "dequantize_per_channel_backward",
    "fractional_max_pool",
    "fractional_max_pool_backward",
    "gather_csr",
    "grid_sample",
    "grid_sample_backward",
    "include_dir",
    "interpolate",
    "interpolate_backward",
    "last_path",
    "library_path",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "nms",
    "nms_sorted",
    "pad",
    "pad_backward",
    "pixel_shuffle",
    "pixel_unshuffle",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_pool",
    "ps_roi_pool_backward",
    "raw",
    "roi_align",
    "roi_align_3d",
    "roi_align_3d_backward",
    "roi_align_backward",
    "roi_align_boxes_backward",
    "roi_align_levels",
    "roi_align_levels_backward",
    "roi_pool",
    "roi_pool_backward",
    "segment_csr",
    "segment_csr_backward",
    "segment_gather",
    "segment_logsumexp",
    "segment_logsumexp_backward",
    "segment_max",
    "segment_max_backward",
    "segment_mean",
    "segment_mean_backward",
    "segment_min",
    "segment_min_backward",
    "segment_prod",
    "segment_prod_backward",
    "segment_softmax",
    "segment_softmax_backward",
    "segment_sum",
    "segment_sum_backward",
    "unsorted_segment_max",
    "unsorted_segment_max_backward",
]

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        # Asked for by few, so the metadata is not read on import.
        from ._library import package_version

        return package_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
