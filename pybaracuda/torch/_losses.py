# SPDX-License-Identifier: Apache-2.0
"""Routes of the negative log-likelihood, to which PyTorch's cross entropy leads, too.

On the CPU PyTorch's kernels are not slower, and know a target that is no class at once.
"""

from __future__ import annotations

from typing import Any

import torch

from ..nll_loss import REDUCTIONS, nll_loss, nll_loss_backward
from ._bad_indices import note_dropped
from ._route import WIDE_FLOATS, of_floats, route

__all__ = ["forward"]

_CONDITIONS = "float32, float64, float16, bfloat16; on the CPU never"


def forward(
    self: Any, target: Any, weight: Any, ignore_index: int, reduction: str, call: Any, *options: Any
) -> tuple[Any, ...]:
    """Call an array function of a loss with its sums, and count the targets that it dropped.

    On the CPU such a target is an error, as it is PyTorch's.
    """
    found: tuple[Any, ...] = call(self, target, weight, ignore_index, reduction, *options, return_sums=True)
    dropped = found[-1]
    if dropped.device.type != "cpu":
        note_dropped(dropped)
    elif int(dropped):
        wrong = target[((target < 0) | (target >= self.shape[min(self.dim(), 2) - 1])) & (target != ignore_index)]
        raise IndexError(f"Target {int(wrong[0])} is out of bounds.")
    return found


def _refusal(self: Any, target: Any, weight: Any, reduction: int) -> str:
    """Say what is wrong with a call; one row without an axis has a sum of weights of its own in PyTorch."""
    found = of_floats(self) if weight is None else of_floats(self, weight)
    if found:
        return found
    if self.dim() not in (2, 4) or not self.numel() or tuple(target.shape) != (self.shape[0], *self.shape[2:]):
        return "shapes that do not fit"
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != self.shape[1]):
        return "shapes that do not fit"
    if target.dtype != torch.int64 and not (target.dtype == torch.uint8 and self.dim() == 2):
        return f"a target of dtype {target.dtype}"
    if target.device != self.device or (weight is not None and weight.device != self.device):
        return "operands on several devices"
    return "" if reduction in range(len(REDUCTIONS)) else "another reduction"


def _enter(name: str, axes: int) -> None:
    def refusal(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> str:
        return _refusal(self, target, weight, reduction) or ("" if self.dim() == axes else "shapes that do not fit")

    def run(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple[Any, Any]:
        output, total, _ = forward(self, target, weight, ignore_index, REDUCTIONS[reduction], nll_loss)
        return output, total.to(self.dtype).reshape(())

    def out_refusal(
        self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, *, output: Any, total_weight: Any
    ) -> str:
        return refusal(self, target, weight, reduction, ignore_index) or of_floats(self, output, total_weight)

    def run_out(
        self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, *, output: Any, total_weight: Any
    ) -> tuple[Any, Any]:
        for given, found in zip(
            (output, total_weight), run(self, target, weight, reduction, ignore_index), strict=True
        ):
            given.resize_(found.shape).copy_(found)
        return output, total_weight

    def backward_refusal(
        grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
    ) -> str:
        found = refusal(self, target, weight, reduction, ignore_index) or of_floats(self, grad_output, total_weight)
        if found:
            return found
        wanted = tuple(target.shape) if reduction == 0 else ()
        return "" if tuple(grad_output.shape) == wanted and total_weight.numel() == 1 else "shapes that do not fit"

    def run_backward(
        grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
    ) -> Any:
        total = total_weight.to(WIDE_FLOATS.get(self.dtype, self.dtype)).reshape(())
        options = (weight, ignore_index, REDUCTIONS[reduction])
        return nll_loss_backward(grad_output, target, total, tuple(self.shape), *options)

    def run_backward_out(*args: Any, grad_input: Any) -> Any:
        found = run_backward(*args)
        return grad_input.resize_(found.shape).copy_(found)

    def backward_out_refusal(*args: Any, grad_input: Any) -> str:
        return backward_refusal(*args) or of_floats(args[1], grad_input)

    # PyTorch keeps images and rows apart; whoever excludes one of them means both.
    options: dict[str, Any] = {"group": "nll_loss", "devices": ("cuda",)}
    route(f"aten::{name}_forward", refusal, _CONDITIONS, **options)(run)
    route(f"aten::{name}_forward.output", out_refusal, _CONDITIONS, **options)(run_out)
    route(f"aten::{name}_backward", backward_refusal, _CONDITIONS, **options)(run_backward)
    route(f"aten::{name}_backward.grad_input", backward_out_refusal, _CONDITIONS, **options)(run_backward_out)


_enter("nll_loss", 2)
_enter("nll_loss2d", 4)
