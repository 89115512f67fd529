# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs on this library's kernels: `install` and what belongs to it, and functions with gradients.

Importing this changes nothing. The functions have the names and arguments of the package's array functions, without
``out=`` and ``stream=``: they take tensors, run on the current stream and take part in autograd, torch.func (reverse
mode), torch.vmap, torch.compile and torch.export. `scatter` has torch_scatter's, `geometric` torch_geometric's.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    # By this module's name: `python -m pybaracuda.torch` then says it in one line, without a traceback.
    raise ModuleNotFoundError("pybaracuda.torch needs PyTorch, which is not installed", name=__name__) from None

# All but the last two are here for the routes that they enter.
from . import (  # noqa: F401
    _bags,
    _bincount,
    _composed_gradients,
    _copies,
    _ctc,
    _images,
    _interpolation,
    _losses,
    _order,
    _pooling,
    _puts,
    _rows,
    _scans,
    _segments,
    _sparse,
    geometric,
    scatter,
)
from ._bad_indices import check_indices
from ._bag_functions import embedding_bag
from ._compile import decompositions
from ._ctc_function import ctc_loss
from ._deform_function import deform_conv2d
from ._grid_sample_function import grid_sample
from ._image_functions import affine_grid, roi_align, roi_pool
from ._installation import Installation, install, uninstall
from ._interpolate_function import interpolate
from ._levels_function import roi_align_levels
from ._loss_functions import cross_entropy, nll_loss
from ._nms_functions import batched_nms, nms
from ._order_functions import histc, kthvalue, median, mode, nanmedian
from ._pad_function import pad
from ._ps_roi_functions import ps_roi_align, ps_roi_pool
from ._quantize_function import dequantize_per_channel
from ._report import Report, operators, report
from ._roi_align_3d_function import roi_align_3d
from ._scan_functions import cummax, cummin, cumprod, cumsum, logcumsumexp
from ._segment_functions import (
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
from ._start import ready

__all__ = [
    "Installation",
    "Report",
    "affine_grid",
    "batched_nms",
    "check_indices",
    "cross_entropy",
    "ctc_loss",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "decompositions",
    "deform_conv2d",
    "dequantize_per_channel",
    "embedding_bag",
    "gather_csr",
    "geometric",
    "grid_sample",
    "histc",
    "install",
    "interpolate",
    "kthvalue",
    "logcumsumexp",
    "median",
    "mode",
    "nanmedian",
    "nll_loss",
    "nms",
    "operators",
    "pad",
    "ps_roi_align",
    "ps_roi_pool",
    "report",
    "roi_align",
    "roi_align_3d",
    "roi_align_levels",
    "roi_pool",
    "scatter",
    "segment_csr",
    "segment_gather",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
    "uninstall",
]

# Last: what a parent process asked for may be installed from here on.
ready()
