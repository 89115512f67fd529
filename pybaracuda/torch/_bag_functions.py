# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings on tensors, with gradients; what they compute is in the array functions."""

from __future__ import annotations

from typing import Any

import torch

from ..embedding_bag import embedding_bag as reduced
from ..embedding_bag import embedding_bag_backward, embedding_bag_weights_backward, mode_of, padding_of
from ._bad_indices import note
from ._opaque import Differentiable, define

__all__ = ["embedding_bag"]


def _index_dtype(*indices: Any) -> Any:
    """Answer the dtype that the array functions give indices of bags."""
    return torch.int64 if any(each.dtype == torch.int64 for each in indices) else torch.int32


def _padding(padding_idx: int) -> int | None:
    return padding_idx if padding_idx >= 0 else None


def _run(
    weight: Any, input: Any, offsets: Any, per_sample_weights: Any, mode: str, padding_idx: int
) -> tuple[Any, Any, Any, Any]:
    if weight.shape[0]:
        note(input, weight.shape[0])
    output, ids, sizes, *arg = reduced(
        input, weight, offsets, mode, per_sample_weights, padding_idx=_padding(padding_idx), return_bags=True
    )
    return output, ids, sizes, arg[0] if arg else ids.new_empty((0, weight.shape[1]))


def _fake(
    weight: Any, input: Any, offsets: Any, per_sample_weights: Any, mode: str, padding_idx: int
) -> tuple[Any, Any, Any, Any]:
    index = _index_dtype(input, offsets)
    count, columns = offsets.shape[0], weight.shape[1]
    output = weight.new_empty((count, columns))
    described = (input.new_empty(each.shape, dtype=index) for each in (input, offsets))
    return output, *described, input.new_empty((count if mode == "max" else 0, columns), dtype=index)


_embedding_bag = define(
    "embedding_bag(Tensor weight, Tensor input, Tensor offsets, Tensor? per_sample_weights, str mode, "
    "int padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
    _run,
    _fake,
    lambda *args: _EmbeddingBag.apply(*args, False),
)


def _run_backward(
    grad_output: Any,
    input: Any,
    bag_ids: Any,
    bag_sizes: Any,
    arg: Any,
    per_sample_weights: Any,
    offsets: Any,
    num_embeddings: int,
    mode: str,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:
    return embedding_bag_backward(
        grad_output, input, bag_ids, num_embeddings, mode, bag_sizes, arg, per_sample_weights, _padding(padding_idx),
        scale_grad_by_freq,
    )  # fmt: skip


def _fake_backward(grad_output: Any, *args: Any) -> Any:
    return grad_output.new_empty((args[6], grad_output.shape[1]))


_embedding_bag_backward = define(
    "embedding_bag_backward(Tensor grad_output, Tensor input, Tensor bag_ids, Tensor bag_sizes, Tensor arg, "
    "Tensor? per_sample_weights, Tensor offsets, SymInt num_embeddings, str mode, int padding_idx, "
    "bool scale_grad_by_freq) -> Tensor",
    _run_backward,
    _fake_backward,
    lambda *args: _EmbeddingBagBackward.apply(*args),
)
_embedding_bag_weights_backward = define(
    "embedding_bag_weights_backward(Tensor grad_output, Tensor weight, Tensor input, Tensor bag_ids, Tensor offsets, "
    "int padding_idx) -> Tensor",
    lambda grad_output, weight, input, bag_ids, offsets, padding_idx: embedding_bag_weights_backward(
        grad_output, weight, input, bag_ids, _padding(padding_idx)
    ),
    lambda grad_output, weight, input, *args: grad_output.new_empty(input.shape),
    lambda *args: _WeightsBackward.apply(*args),
)


class _EmbeddingBag(Differentiable):
    """Linear in the table and in the weights; what is told of bags has no gradient."""

    @staticmethod
    def forward(
        weight: Any,
        input: Any,
        offsets: Any,
        per_sample_weights: Any,
        mode: str,
        padding_idx: int,
        scale_grad_by_freq: bool,
    ) -> Any:
        return _embedding_bag(weight, input, offsets, per_sample_weights, mode, padding_idx)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        weight, input, offsets, per_sample_weights, *ctx.options = inputs
        ctx.save_for_backward(
            weight if per_sample_weights is not None else None, input, offsets, per_sample_weights, *output[1:]
        )
        ctx.mark_non_differentiable(*output[1:])
        ctx.num_embeddings = weight.shape[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any, *of_bags: Any) -> Any:
        weight, input, offsets, per_sample_weights, ids, sizes, arg = ctx.saved_tensors
        mode, padding_idx, scale_grad_by_freq = ctx.options
        of_weight = of_weights = None
        if ctx.needs_input_grad[0]:
            of_weight = _EmbeddingBagBackward.apply(
                grad_output, input, ids, sizes, arg, per_sample_weights, offsets, ctx.num_embeddings, mode,
                padding_idx, scale_grad_by_freq,
            )  # fmt: skip
        if ctx.needs_input_grad[3]:
            of_weights = _WeightsBackward.apply(grad_output, weight, input, ids, offsets, padding_idx)
        return of_weight, None, None, of_weights, None, None, None


class _EmbeddingBagBackward(Differentiable):
    """The adjoint by the table: linear in the gradient and in the weights."""

    @staticmethod
    def forward(
        grad_output: Any,
        input: Any,
        bag_ids: Any,
        bag_sizes: Any,
        arg: Any,
        per_sample_weights: Any,
        offsets: Any,
        num_embeddings: int,
        mode: str,
        padding_idx: int,
        scale_grad_by_freq: bool,
    ) -> Any:
        return _embedding_bag_backward(
            grad_output, input, bag_ids, bag_sizes, arg, per_sample_weights, offsets, num_embeddings, mode,
            padding_idx, scale_grad_by_freq,
        )  # fmt: skip

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, input, ids, _, arg, per_sample_weights, offsets, *ctx.options = inputs
        weighed = grad_output if per_sample_weights is not None else None
        ctx.save_for_backward(weighed, input, ids, arg, per_sample_weights, offsets)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad_output, input, ids, arg, per_sample_weights, offsets = ctx.saved_tensors
        num_embeddings, mode, padding_idx, scale_grad_by_freq = ctx.options
        if scale_grad_by_freq:
            counts = torch.bincount(input.clamp(0, num_embeddings - 1), minlength=num_embeddings)
            grad = grad / counts.clamp(min=1).to(grad.dtype)[:, None]
        of_grad = of_weights = None
        if ctx.needs_input_grad[0]:
            if mode == "max":
                held = grad.gather(0, arg.clamp(min=0).to(torch.int64))
                of_grad = torch.where(arg >= 0, held, 0)
            else:
                given = grad, input, offsets, per_sample_weights, mode, padding_idx, False
                of_grad = _EmbeddingBag.apply(*given)[0]
        if ctx.needs_input_grad[5]:
            of_weights = _WeightsBackward.apply(grad_output, grad, input, ids, offsets, padding_idx)
        return of_grad, None, None, None, None, of_weights, None, None, None, None, None


class _WeightsBackward(Differentiable):
    """The adjoint by the weights: linear in the gradient and in the table."""

    @staticmethod
    def forward(grad_output: Any, weight: Any, input: Any, bag_ids: Any, offsets: Any, padding_idx: int) -> Any:
        return _embedding_bag_weights_backward(grad_output, weight, input, bag_ids, offsets, padding_idx)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, weight, input, ids, offsets, ctx.padding_idx = inputs
        ctx.save_for_backward(grad_output, weight, input, ids, offsets)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad_output, weight, input, ids, offsets = ctx.saved_tensors
        of_grad = of_weight = None
        if ctx.needs_input_grad[0]:
            of_grad = _EmbeddingBag.apply(weight, input, offsets, grad, "sum", ctx.padding_idx, False)[0]
        if ctx.needs_input_grad[1]:
            none = ids[:0]
            of_weight = _EmbeddingBagBackward.apply(
                grad_output, input, ids, none, none, grad, offsets, weight.shape[0], "sum", ctx.padding_idx, False
            )
        return of_grad, of_weight, None, None, None, None


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> Any:
    """Reduce bags of rows of a table, as ``torch.nn.functional.embedding_bag`` does.

    Parameters
    ----------
    input : Tensor, [N] or [B, L]
        The row of each position in int32 or int64, the bags one after another; of two axes each row is a bag.
    weight : Tensor, [E, D]
        The table in float32, float64, float16 or bfloat16.
    offsets : Tensor, [B]
        Where each bag begins; only where `input` has one axis.
    mode : {"mean", "sum", "max"}
        What becomes of a bag.
    per_sample_weights : Tensor, optional
        A weight for each position in the table's dtype and the shape of `input`, for sums.
    include_last_offset : bool
        Whether `offsets` has one entry more, which is taken for N.
    padding_idx : int, optional
        The row that takes no part, negative from the last one.
    scale_grad_by_freq : bool
        Whether each row's gradient is divided by how many positions name it; not for maxima.

    Returns
    -------
    Tensor, [B, D]
        Of the table's dtype and device.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.embedding_bag``.

    Notes
    -----
    Derivatives of every order exist with respect to the table and to the weights, with the bits of
    ``pybaracuda.embedding_bag_backward`` and ``pybaracuda.embedding_bag_weights_backward``. A position whose index is
    no row of the table takes no part; on a GPU ``check_indices`` tells of it.
    """
    kind = mode_of(mode)
    if scale_grad_by_freq and kind == "max":
        raise ValueError("scale_grad_by_freq: mode is 'max', which has none")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("offsets: input has two axes, whose rows are the bags; leave them out")
        count, length = input.shape
        offsets = torch.arange(count, dtype=input.dtype, device=input.device) * length
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif offsets is None:
        raise ValueError(f"offsets is None; input has shape {tuple(input.shape)} and wants them")
    elif include_last_offset:
        offsets = offsets[:-1]
    if per_sample_weights is not None and kind != "sum":
        raise ValueError(f"per_sample_weights: mode is {kind!r}; wanted 'sum'")
    padding = padding_of(padding_idx, weight.shape[0])
    return _EmbeddingBag.apply(weight, input, offsets, per_sample_weights, kind, padding, scale_grad_by_freq)[0]
