# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own test samples (OpInfo) of the operators that install() takes over, and calls of them; no tests here."""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree

# By PyTorch's names. What must have gone to a kernel of ours at least once, forward and backward, when all samples ran.
TAKEN = {
    "nn.functional.grid_sample": ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"),
    "grid_sampler_2d": ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"),
    "nn.functional.pad reflect": ("aten::reflection_pad2d", "aten::reflection_pad3d_backward"),
    "nn.functional.pad replicate": ("aten::replication_pad1d", "aten::replication_pad2d_backward"),
    "nn.functional.pad constant": ("aten::constant_pad_nd",),
    "constant_pad_nd": ("aten::constant_pad_nd",),
    "index_add": ("aten::index_add",),
    "index_select": ("aten::index_add_",),
    "index_put": ("aten::index_put",),
    "nn.functional.embedding": ("aten::embedding_dense_backward",),
    "_segment_reduce lengths": ("aten::segment_reduce", "aten::_segment_reduce_backward"),
    "_segment_reduce offsets": ("aten::segment_reduce", "aten::_segment_reduce_backward"),
    # Their samples' indices differ by element; tests of rows stand in test_torch_install.py.
    "gather": (),
    "scatter_add": (),
    "scatter_reduce sum": (),
    "scatter_reduce mean": (),
    "scatter_reduce prod": (),
    "scatter_reduce amax": (),
    "scatter_reduce amin": (),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)


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


def samples(name: str, device: str, dtype: Any) -> Iterator[Any]:
    """The operator's samples, each dense and with strides."""
    info = operators()[name]
    differentiable = dtype.is_floating_point and info.supports_autograd
    for sample in info.sample_inputs(device, dtype, requires_grad=differentiable):
        yield sample
        yield sample.noncontiguous()


def called(operator: Callable[..., Any], sample: Any, dtype: Any = None) -> list[Any]:
    """Outputs and gradients of a call on copies of a sample's tensors, floats converted to `dtype`."""

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.detach().clone()
        if dtype is not None and copy.is_floating_point():
            copy = copy.to(dtype)
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
        found = torch.autograd.grad([each.sum() for each in total], wanted, allow_unused=True)
        results += [each for each in found if each is not None]
    return results
