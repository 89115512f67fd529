# SPDX-License-Identifier: Apache-2.0
"""The operators in JAX: inside jit, grad, vmap, scan and programs that several devices share.

The functions have the names and arguments of the package's array functions, without ``out=`` and ``stream=``; those of
segments have jax.ops' signatures. Importing this tells XLA of the library's handlers and changes nothing of JAX.
"""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError(f"pybaracuda.jax needs JAX: pip install 'pybaracuda[jax]' ({error})") from error

from ._averages import adaptive_avg_pool, avg_pool
from ._bags import embedding_bag
from ._bincount import bincount
from ._ctc import ctc_loss
from ._deform import deform_conv2d, deform_im2col
from ._handler import TARGET, TARGETS
from ._images import affine_grid, grid_sample
from ._index_copy import index_copy
from ._interpolation import interpolate
from ._losses import cross_entropy, nll_loss
from ._maxima import adaptive_max_pool, fractional_max_pool, max_pool, max_unpool
from ._order import histc, kthvalue, median, mode, nanmedian
from ._pad import pad
from ._pixel_shuffle import pixel_shuffle, pixel_unshuffle
from ._pooling import ps_roi_align, ps_roi_pool, roi_align, roi_align_3d, roi_align_levels, roi_pool
from ._quantize import dequantize_per_channel
from ._scans import cummax, cummin, cumprod, cumsum, logcumsumexp
from ._segments import (
    gather_csr,
    segment_csr,
    segment_gather,
    segment_logsumexp,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_softmax,
    segment_sum,
)
from ._suppression import batched_nms, nms, nms_sorted

__all__ = [
    "TARGET",
    "TARGETS",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "affine_grid",
    "avg_pool",
    "batched_nms",
    "bincount",
    "cross_entropy",
    "ctc_loss",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "deform_conv2d",
    "deform_im2col",
    "dequantize_per_channel",
    "embedding_bag",
    "fractional_max_pool",
    "gather_csr",
    "grid_sample",
    "histc",
    "index_copy",
    "interpolate",
    "kthvalue",
    "logcumsumexp",
    "max_pool",
    "max_unpool",
    "median",
    "mode",
    "nanmedian",
    "nll_loss",
    "nms",
    "nms_sorted",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "ps_roi_align",
    "ps_roi_pool",
    "roi_align",
    "roi_align_3d",
    "roi_align_levels",
    "roi_pool",
    "segment_csr",
    "segment_gather",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
]
