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

from ._handler import TARGET, TARGETS
from ._images import affine_grid, grid_sample
from ._pad import pad
from ._pixel_shuffle import pixel_shuffle, pixel_unshuffle
from ._pooling import roi_align, roi_pool
from ._quantize import dequantize_per_channel
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

__all__ = [
    "TARGET",
    "TARGETS",
    "affine_grid",
    "dequantize_per_channel",
    "gather_csr",
    "grid_sample",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "roi_align",
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
