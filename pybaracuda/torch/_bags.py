# SPDX-License-Identifier: Apache-2.0
"""Routes of bags of embeddings and of their gradients, and of the gradient of embeddings without bags.

PyTorch answers more than the bags: on CUDA the bag of each position, how many of each bag take part, and of maxima the
rows that hold them; on the CPU some of these are empty or zeros where its own gradient does not look at them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from ..embedding_bag import MODES, embedding_bag, embedding_bag_backward, embedding_bag_weights_backward
from ..segment import segment_mean, segment_sum
from ._bad_indices import note
from ._named import INDICES, in_range
from ._route import CPU_ALWAYS, of_floats, route

__all__: list[str] = []

_FLOATS = "float32, float64, float16, bfloat16"


def _padding(padding_idx: int) -> int | None:
    return padding_idx if padding_idx >= 0 else None


def _bags_of(offsets: Any, count: int) -> Any:
    """Answer the bag of each of so many positions."""
    positions = torch.arange(count, dtype=offsets.dtype, device=offsets.device)
    return torch.searchsorted(offsets, positions, right=True, out_int32=offsets.dtype == torch.int32) - 1


def _of_indices(*indices: Any) -> str:
    """Say what is wrong with tensors that have an entry for each position or bag."""
    if any(each.dtype not in INDICES for each in indices):
        return f"an index of {next(each.dtype for each in indices if each.dtype not in INDICES)}"
    return "" if all(each.dim() == 1 and each.numel() for each in indices) else "an empty tensor"


def _of_weights(per_sample_weights: Any, mode: int, indices: Any, *floats: Any) -> str:
    if mode not in range(len(MODES)):
        return "another mode"
    if per_sample_weights is None:
        return of_floats(*floats)
    if mode != 0 or per_sample_weights.shape != indices.shape:
        return "weights that PyTorch refuses"
    return of_floats(*floats, per_sample_weights)


def _offsets_in_order(offsets: Any, count: int, include_last_offset: bool) -> bool:
    """Tell whether offsets are what PyTorch wants, as far as that can be seen: on the CPU, where it looks, too."""
    if offsets.device.type != "cpu" or type(offsets) is not torch.Tensor:
        return True
    begins = offsets.tolist()
    if begins[0] != 0 or begins[-1] > count or (include_last_offset and begins[-1] != count):
        return False
    return all(one <= other for one, other in pairwise(begins))


def _refusal(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> str:
    found = _of_indices(indices, offsets) or _of_weights(per_sample_weights, mode, indices, weight)
    if found:
        return found
    if MODES[mode] != "max" and weight.device.type == "cpu" and not CPU_ALWAYS:
        return "sums of bags on the CPU"
    if weight.dim() != 2 or not weight.numel() or (include_last_offset and offsets.shape[0] < 2):
        return "an empty tensor"
    if padding_idx >= weight.shape[0] or not _offsets_in_order(offsets, indices.shape[0], include_last_offset):
        return "arguments that PyTorch refuses"
    return "" if in_range(indices, weight.shape[0]) else "an index out of range"


def _run(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    is_forward_only: bool = False,
) -> tuple[Any, Any, Any, Any]:
    note(indices, weight.shape[0])
    on_cpu = weight.device.type == "cpu"
    index = torch.promote_types(indices.dtype, offsets.dtype)
    bags = offsets.shape[0] - int(include_last_offset)
    # PyTorch has a size for each offset on CUDA, and on the CPU where it makes none.
    has_all = not on_cpu or (is_forward_only and MODES[mode] == "sum")
    extent = offsets.shape[0] if has_all else bags
    sizes = torch.zeros(extent, dtype=index, device=weight.device) if extent > bags else None
    outs = None
    if sizes is not None:
        outs = (None, None, sizes[:bags], *([None] if MODES[mode] == "max" else []))
    output, ids, counted, *arg = embedding_bag(
        indices, weight, offsets, MODES[mode], per_sample_weights, include_last_offset, _padding(padding_idx),
        return_bags=True, out=outs,
    )  # fmt: skip
    sizes = counted if sizes is None else sizes
    holders = arg[0] if arg else indices.new_empty(0, dtype=index)
    return _as_on_cpu(output, ids, sizes, holders, weight, per_sample_weights, mode, padding_idx) if on_cpu else (
        output, ids, sizes, holders,
    )  # fmt: skip


def _as_on_cpu(
    output: Any, ids: Any, sizes: Any, arg: Any, weight: Any, per_sample_weights: Any, mode: int, padding_idx: int
) -> tuple[Any, Any, Any, Any]:
    """Answer what PyTorch's kernel for the CPU does: of sums no sizes, and no bags where it has a fast way."""
    if MODES[mode] == "max":
        return output, ids, sizes, arg.clamp(min=0)
    if MODES[mode] == "mean":
        return output, ids, sizes, sizes.clone()
    is_dense = weight.stride(1) == 1 and (per_sample_weights is None or per_sample_weights.stride(0) == 1)
    is_fast = weight.dtype in (torch.float32, torch.float16) and is_dense and padding_idx < 0
    return output, ids[:0].clone() if is_fast else ids, torch.zeros_like(sizes), torch.zeros_like(sizes)


def _run_forward_only(*args: Any, **options: Any) -> tuple[Any, Any, Any, Any]:
    return _run(*args, **options, is_forward_only=True)


def _backward_refusal(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> str:
    found = _of_indices(indices, offset2bag) or _of_weights(per_sample_weights, mode, indices, grad)
    if found:
        return found
    if grad.dim() != 2 or not grad.numel() or not num_weights:
        return "an empty tensor"
    name = MODES[mode]
    fits = offset2bag.shape == indices.shape
    fits = fits and (name != "mean" or (bag_size.dim() == 1 and bag_size.shape[0] >= grad.shape[0]))
    if not fits or (name == "max" and maximum_indices.shape != grad.shape):
        return "shapes that do not fit"
    if name == "max" and scale_grad_by_freq:
        return "maxima with scale_grad_by_freq=True"
    if padding_idx >= num_weights:
        return "arguments that PyTorch refuses"
    return "" if in_range(indices, num_weights) else "an index out of range"


def _run_backward(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    name = MODES[mode]
    return embedding_bag_backward(
        grad,
        indices,
        offset2bag,
        num_weights,
        name,
        bag_size[: grad.shape[0]] if name == "mean" else None,
        maximum_indices if name == "max" else None,
        per_sample_weights,
        _padding(padding_idx),
        scale_grad_by_freq,
    )


def _weights_refusal(
    grad: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> str:
    found = _of_indices(indices, offsets) or of_floats(grad, weight)
    if found or mode != 0:
        return found or "another mode"
    if offset2bag.dtype not in INDICES or offset2bag.shape[0] not in (0, indices.shape[0]):
        return "shapes that do not fit"
    if grad.dim() != 2 or weight.dim() != 2 or grad.shape[1] != weight.shape[1]:
        return "shapes that do not fit"
    if not grad.numel() or not weight.numel():
        return "an empty tensor"
    if padding_idx >= weight.shape[0]:
        return "arguments that PyTorch refuses"
    return "" if in_range(indices, weight.shape[0]) else "an index out of range"


def _run_weights_backward(
    grad: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    # On the CPU PyTorch's forward has no bags where it needs none itself.
    bags = offset2bag if offset2bag.shape[0] else _bags_of(offsets[: grad.shape[0]], indices.shape[0])
    return embedding_bag_weights_backward(grad, weight, indices, bags, _padding(padding_idx))


_OPTIONS: dict[str, Any] = {"group": "embedding_bag", "whole": True}
for _name, _call in (("_embedding_bag", _run), ("_embedding_bag_forward_only", _run_forward_only)):
    route(f"aten::{_name}", _refusal, f"{_FLOATS}; on the CPU maxima alone", **_OPTIONS)(_call)
route("aten::_embedding_bag_dense_backward", _backward_refusal, _FLOATS, **_OPTIONS)(_run_backward)
route(
    "aten::_embedding_bag_per_sample_weights_backward",
    _weights_refusal,
    f"{_FLOATS}; on the CPU never",
    devices=("cuda",),
    **_OPTIONS,
)(_run_weights_backward)


def _embedding_refusal(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> str:
    if indices.dtype not in INDICES:
        return f"an index of {indices.dtype}"
    if not grad_output.numel() or not num_weights:
        return "an empty tensor"
    return of_floats(grad_output) or ("" if in_range(indices, num_weights) else "an index out of range")


@route(
    "aten::embedding_dense_backward",
    _embedding_refusal,
    _FLOATS,
)
def _embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    ids = indices.reshape(-1)
    note(ids, num_weights)
    if padding_idx >= 0:
        ids = torch.where(ids == padding_idx, -1, ids)
    # A mean is what the sum is when it is divided by how many entries name a row.
    reduce = segment_mean if scale_grad_by_freq else segment_sum
    return reduce(grad_output.reshape(ids.shape[0], -1), ids, num_weights)
