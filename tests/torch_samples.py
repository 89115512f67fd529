# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own test samples (OpInfo) of the operators that install() takes over, and calls of them; no tests here."""

from __future__ import annotations

import os
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

# By PyTorch's names. What must have gone to a kernel of ours at least once, forward and backward, when all samples ran.
TAKEN = {
    "nn.functional.grid_sample": ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"),
    "grid_sampler_2d": ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"),
    "grid_sampler_3d": ("aten::grid_sampler_3d", "aten::grid_sampler_3d_backward"),
    "nn.functional.pad reflect": ("aten::reflection_pad2d", "aten::reflection_pad3d_backward"),
    "nn.functional.pad replicate": ("aten::replication_pad1d", "aten::replication_pad2d_backward"),
    "nn.functional.pad replicate_negative": ("aten::replication_pad2d_backward",),
    "nn.functional.pad constant": ("aten::constant_pad_nd",),
    "constant_pad_nd": ("aten::constant_pad_nd",),
    "nn.functional.interpolate linear": ("aten::upsample_linear1d", "aten::upsample_linear1d_backward"),
    "nn.functional.interpolate bilinear": ("aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward"),
    "nn.functional.interpolate bicubic": ("aten::upsample_bicubic2d", "aten::upsample_bicubic2d_backward"),
    "nn.functional.interpolate trilinear": ("aten::upsample_trilinear3d", "aten::upsample_trilinear3d_backward"),
    "nn.functional.interpolate nearest": ("aten::upsample_nearest1d", "aten::upsample_nearest3d_backward"),
    "nn.functional.interpolate nearest-exact": (
        "aten::_upsample_nearest_exact2d",
        "aten::_upsample_nearest_exact1d_backward",
    ),
    "nn.functional.interpolate area": ("aten::_adaptive_avg_pool3d", "aten::_adaptive_avg_pool2d_backward"),
    "nn.functional.upsample_bilinear": ("aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward"),
    "nn.functional.upsample_nearest": ("aten::upsample_nearest2d", "aten::upsample_nearest3d_backward"),
    "_upsample_bilinear2d_aa": ("aten::_upsample_bilinear2d_aa", "aten::_upsample_bilinear2d_aa_backward"),
    "nn.functional.avg_pool1d": ("aten::avg_pool2d", "aten::avg_pool2d_backward"),
    "nn.functional.avg_pool2d": ("aten::avg_pool2d", "aten::avg_pool2d_backward"),
    "nn.functional.avg_pool3d": ("aten::avg_pool3d", "aten::avg_pool3d_backward"),
    "nn.functional.adaptive_avg_pool1d": ("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d_backward"),
    "nn.functional.adaptive_avg_pool2d": ("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d_backward"),
    "nn.functional.adaptive_avg_pool3d": ("aten::_adaptive_avg_pool3d", "aten::_adaptive_avg_pool3d_backward"),
    "nn.functional.max_pool1d": ("aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"),
    "nn.functional.max_pool2d": ("aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"),
    "max_pool2d_with_indices_backward": ("aten::max_pool2d_with_indices_backward",),
    "nn.functional.max_pool3d": ("aten::max_pool3d_with_indices", "aten::max_pool3d_with_indices_backward"),
    "nn.functional.adaptive_max_pool1d": ("aten::adaptive_max_pool2d", "aten::adaptive_max_pool2d_backward"),
    "nn.functional.adaptive_max_pool2d": ("aten::adaptive_max_pool2d", "aten::adaptive_max_pool2d_backward"),
    "nn.functional.adaptive_max_pool3d": ("aten::adaptive_max_pool3d", "aten::adaptive_max_pool3d_backward"),
    "nn.functional.fractional_max_pool2d": ("aten::fractional_max_pool2d", "aten::fractional_max_pool2d_backward"),
    "nn.functional.fractional_max_pool3d": ("aten::fractional_max_pool3d", "aten::fractional_max_pool3d_backward"),
    "nn.functional.max_unpool1d": ("aten::max_unpool2d",),
    "nn.functional.max_unpool2d": ("aten::max_unpool2d",),
    "nn.functional.max_unpool3d": ("aten::max_unpool3d",),
    "nn.functional.max_unpool1d grad": ("aten::max_unpool2d",),
    "nn.functional.max_unpool2d grad": ("aten::max_unpool2d",),
    "nn.functional.max_unpool3d grad": ("aten::max_unpool3d",),
    "nn.functional.nll_loss": ("aten::nll_loss_forward", "aten::nll_loss2d_backward"),
    "nn.functional.cross_entropy": ("aten::nll_loss2d_forward", "aten::nll_loss_backward"),
    "cumsum": ("aten::cumsum",),
    "cumprod": ("aten::cumprod", "aten::cumprod_backward"),
    "masked.cumsum": ("aten::cumsum",),
    "masked.cumprod": ("aten::cumprod",),
    "cumulative_trapezoid": ("aten::cumsum",),
    "logcumsumexp": ("aten::_logcumsumexp",),
    "cummax": ("aten::_cummax_helper", "aten::cummaxmin_backward"),
    "cummin": ("aten::_cummin_helper", "aten::cummaxmin_backward"),
    "nn.functional.ctc_loss": (
        *("aten::ctc_loss.IntList", "aten::ctc_loss.Tensor"),
        *("aten::_ctc_loss", "aten::_ctc_loss_backward"),
    ),
    "kthvalue": ("aten::kthvalue", "aten::value_selecting_reduction_backward"),
    "median": ("aten::median.dim", "aten::value_selecting_reduction_backward"),
    "nanmedian": ("aten::nanmedian.dim", "aten::value_selecting_reduction_backward"),
    "masked.median": ("aten::nanmedian.dim",),
    "mode": ("aten::mode", "aten::value_selecting_reduction_backward"),
    "histc": ("aten::histc",),
    "bincount": ("aten::bincount",),
    "index_add": ("aten::index_add",),
    "index_copy": ("aten::index_copy",),
    "index_reduce prod": ("aten::index_reduce",),
    "index_reduce mean": ("aten::index_reduce",),
    "index_reduce amax": ("aten::index_reduce",),
    "index_reduce amin": ("aten::index_reduce",),
    "index_select": ("aten::index_add_",),
    "repeat_interleave": ("aten::index_add_",),
    "index_put": ("aten::index_put",),
    "_unsafe_masked_index_put_accumulate": ("aten::index_put",),
    "__getitem__": ("aten::_index_put_impl_",),
    "take": ("aten::put_",),
    "nn.functional.embedding": ("aten::embedding_dense_backward",),
    "nn.functional.embedding_bag": ("aten::_embedding_bag_dense_backward",),
    "_segment_reduce lengths": ("aten::segment_reduce", "aten::_segment_reduce_backward"),
    "_segment_reduce offsets": ("aten::segment_reduce", "aten::_segment_reduce_backward"),
    "gather": ("aten::gather_backward", "aten::scatter_add_"),
    "put": ("aten::put_",),
    "scatter": ("aten::scatter.src",),
    "scatter_add": ("aten::scatter_add",),
    "scatter_reduce sum": ("aten::scatter_reduce.two",),
    "scatter_reduce mean": ("aten::scatter_reduce.two",),
    "scatter_reduce prod": ("aten::scatter_reduce.two",),
    "scatter_reduce amax": ("aten::scatter_reduce.two",),
    "scatter_reduce amin": ("aten::scatter_reduce.two",),
    "take_along_dim": ("aten::scatter_add_",),
}
# Of equal elements PyTorch's indices name another one.
OTHER_PLACES = frozenset({"kthvalue", "median", "nanmedian", "mode"})
# Calls that PyTorch refuses on CUDA and ours can do, by a part of the refusal: the answer is that of PyTorch's CPU.
ANSWERED = {"median": ("cannot have more than 25 dimensions",)}
# What PyTorch has no kernel for, though it lists the dtype: the gradient of a bag's weights.
LACKING = frozenset({("nn.functional.embedding_bag", torch.bfloat16, "cuda")})
# Their results are sums of terms of both signs, which may cancel.
CANCELLING = frozenset({"nn.functional.nll_loss"})
# Those that few operators have kernels for.
RARE = (torch.complex64, torch.uint8, torch.int16, torch.bool)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, *RARE)


@cache
def operators() -> dict[str, Any]:
    """PyTorch's records of the operators, by name and variant."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:
            # What the records are imported with wants its test class, and they themselves nothing of it.
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    # Importing them forbids this process to set PyTorch's flags; other tests do.
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    return {f"{each.name} {each.variant_test_name}".strip(): each for each in op_db}


def leaves(tree: Any) -> list[Any]:
    """Every tensor of nested arguments or results."""
    return [each for each in _pytree.tree_leaves(tree) if isinstance(each, torch.Tensor)]


# Of more samples than this, as pooling has them by the thousand, so many are tried, others in every run. The number is
# larger in float32, with all of which this has passed.
MANY = int(os.environ.get("BARACUDA_TEST_SAMPLES", "40"))
MANY_IN_FLOAT32 = 5 * MANY
# PyTorch's own result takes half a second a sample, or more.
SLOW = {"grid_sampler_3d": 6}
# Roundings of the largest number that a result may be off by, where they are more than a few. Of a voxel's some sixty
# terms both orders round each. PyTorch's gradient of logcumsumexp is the exponential of a difference of numbers up to
# 10,000, which are rounded. Of ctc_loss fifty steps, in which a logarithm of up to a hundred is rounded twice and errs
# by eight roundings itself; an exponential passes the difference on.
COARSE = {
    ("grid_sampler_3d", torch.float64): 128,
    ("logcumsumexp", torch.float64): 1 << 16,
    ("nn.functional.ctc_loss", torch.float64): 50 * (2 * 100 + 8),
}


def _place_windows(found: list[Any], rng: np.random.Generator) -> None:
    """Give samples of a fractional pooling their random numbers, which PyTorch would draw by the dtype.

    Odd 64ths: no window of a few dozen elements then begins so near to a whole number that a dtype's rounding moves it.
    """
    for sample in found:
        image, axes = sample.input, sample.input.dim() - 2
        drawn = rng.integers(0, 32, (*image.shape[:2], axes)) / 32 + 1 / 64
        sample.kwargs["_random_samples"] = torch.from_numpy(drawn).to(image)


def offered(name: str, device: str, dtype: Any, rng: np.random.Generator) -> list[Any]:
    """All of the operator's samples, whose tensors need gradients where they can have them."""
    info = operators()[name]
    differentiable = (dtype.is_floating_point or dtype.is_complex) and info.supports_autograd
    found = list(info.sample_inputs(device, dtype, requires_grad=differentiable))
    if "fractional" in name:
        # PyTorch's kernel for the CPU, and no other, places windows in 16 bits, too.
        found = [] if device == "cpu" and dtype.itemsize == 2 else found
        _place_windows(found, rng)
    return found


def samples(name: str, device: str, dtype: Any, rng: np.random.Generator) -> Iterator[Any]:
    """The operator's samples, each dense and with strides; of many some."""
    found = offered(name, device, dtype, rng)
    most = SLOW.get(name, MANY_IN_FLOAT32 if dtype is torch.float32 else MANY // 4 if dtype in RARE else MANY)
    chosen = range(len(found)) if len(found) <= most else sorted(rng.choice(len(found), most, replace=False))
    for number in chosen:
        yield found[number]
        yield found[number].noncontiguous()


def called(operator: Callable[..., Any], sample: Any, dtype: Any = None) -> list[Any]:
    """Outputs and gradients of a call on copies of a sample's tensors, its floats in `dtype` or its complex."""

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.detach().clone()
        if dtype is not None and (copy.is_floating_point() or copy.is_complex()):
            copy = copy.to(dtype.to_complex() if copy.is_complex() else dtype)
        return copy.requires_grad_(value.requires_grad)

    first, arguments, options = _pytree.tree_map(copied, (sample.input, sample.args, sample.kwargs))
    outputs = leaves(operator(first, *arguments, **options))
    results = [each.detach().clone() for each in outputs]
    wanted = [each for each in leaves((first, arguments, options)) if each.requires_grad]
    differentiable = [each for each in outputs if each.requires_grad]
    if wanted and differentiable:
        # Weights of one binary digit or two are exact in every dtype.
        weights = [(torch.arange(each.numel(), device=each.device) % 3 + 1).to(each.dtype) for each in differentiable]
        total = [each * weight.reshape(each.shape) for each, weight in zip(differentiable, weights, strict=True)]
        # A sum of both parts of a complex number is a number of which there is a gradient.
        sums = [each.real.sum() + each.imag.sum() if each.is_complex() else each.sum() for each in total]
        found = torch.autograd.grad(sums, wanted, allow_unused=True)
        results += [each for each in found if each is not None]
    return results
