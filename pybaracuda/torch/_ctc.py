# SPDX-License-Identifier: Apache-2.0
"""Routes of connectionist temporal classification. What lengths PyTorch refuses goes to PyTorch, which says so.

Its function is composed of the operator and of a reduction. On CUDA the composition takes the targets to the host, and
so the function is a route as well. What is traced, or lies on two devices, comes to the operator alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch

from ..ctc_loss import ctc_loss, ctc_loss_backward
from ..nll_loss import REDUCTIONS
from ._route import CPU_ALWAYS, FEW_ELEMENTS, is_plain, route

__all__ = ["lengths_of", "reduced"]

# Below it a call of Python's is most of the time.
_FEW = 1 << 16
_CONDITIONS = "float32, float64; on the CPU 65,536 log-probabilities and more"
_INTEGERS = frozenset((torch.int32, torch.int64))


def lengths_of(lengths: Any, device: Any) -> Any:
    """Answer lengths as a tensor of a device; the host does not wait for it to take them."""
    if not isinstance(lengths, torch.Tensor):
        lengths = torch.tensor(lengths, dtype=torch.int64)
    if device.type != "cuda" or lengths.device.type != "cpu" or torch.compiler.is_compiling():
        return lengths.to(device)
    if torch.cuda.is_current_stream_capturing():
        return _written(lengths, device)
    # From other memory the copy would wait for all that was asked of the GPU before.
    return lengths.pin_memory().to(device, non_blocking=True)


def _written(lengths: Any, device: Any) -> Any:
    """Answer lengths of the host that a graph writes itself: its replays would read memory that may be gone."""
    found = torch.empty(lengths.shape, dtype=lengths.dtype, device=device)
    numbers, begin = found.reshape(-1), 0
    for length, equal in groupby(lengths.reshape(-1).tolist()):
        end = begin + len(list(equal))
        numbers[begin:end] = length
        begin = end
    return found


def reduced(losses: Any, target_lengths: Any, reduction: str, zero_infinity: bool) -> Any:
    """Answer what the function makes of its sequences' losses: their mean is that of each over its target's length."""
    if zero_infinity:
        losses = torch.where(losses == torch.inf, 0.0, losses)
    if reduction == "mean":
        return (losses / lengths_of(target_lengths, losses.device).clamp(min=1).to(losses.dtype)).mean()
    return losses.sum() if reduction == "sum" else losses


def _numbers(lengths: Any) -> list[int]:
    """Answer lengths as the host knows them; it waits for those of a device, as PyTorch's own operator does."""
    return lengths.tolist() if isinstance(lengths, torch.Tensor) else list(lengths)


def _refusal(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> str:
    if log_probs.dtype not in (torch.float32, torch.float64):
        return f"dtype {log_probs.dtype}"
    if targets.dtype not in _INTEGERS or targets.device != log_probs.device:
        return "targets of another dtype or device"
    if log_probs.dim() != 3 or not log_probs.numel() or targets.dim() not in (1, 2):
        return "shapes that do not fit"
    if log_probs.device.type == "cpu" and not CPU_ALWAYS and log_probs.numel() < _FEW:
        return FEW_ELEMENTS
    steps, labels = _numbers(input_lengths), _numbers(target_lengths)
    t, n, c = log_probs.shape
    if len(steps) != n or len(labels) != n or not 0 <= blank < c:
        return "arguments that PyTorch refuses"
    if targets.dim() == 1:
        fits = sum(labels) == targets.shape[0]
    else:
        fits = targets.shape[0] == n and max(labels) <= targets.shape[1]
    in_range = min(steps) >= 0 and max(steps) <= t and min(labels) >= 0
    return "" if fits and in_range else "arguments that PyTorch refuses"


def _run(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> Any:
    labels = _numbers(target_lengths)
    lengths = lengths_of(_numbers(input_lengths), log_probs.device), lengths_of(labels, log_probs.device)
    return ctc_loss(log_probs, targets, *lengths, blank, max_target_length=max(labels), return_log_alpha=True)


def _backward_refusal(
    grad: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: Any,
    log_alpha: Any,
    blank: int,
    zero_infinity: bool = False,
) -> str:
    found = _refusal(log_probs, targets, input_lengths, target_lengths, blank)
    if found:
        return found
    t, n, _ = log_probs.shape
    sums = (grad, neg_log_likelihood, log_alpha)
    if any(each.dtype != log_probs.dtype or each.device != log_probs.device for each in sums):
        return "operands of several dtypes"
    shapes = tuple(grad.shape) == (n,) == tuple(neg_log_likelihood.shape)
    states = 2 * max(_numbers(target_lengths)) + 1
    return "" if shapes and tuple(log_alpha.shape) == (n, t, states) else "shapes that do not fit"


def _run_backward(
    grad: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: Any,
    log_alpha: Any,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    steps, labels = (lengths_of(each, log_probs.device) for each in (input_lengths, target_lengths))
    sums = neg_log_likelihood, log_alpha
    return ctc_loss_backward(grad, log_probs, targets, steps, labels, *sums, blank, zero_infinity)


def _composed_refusal(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> str:
    lengths = [each for each in (input_lengths, target_lengths) if isinstance(each, torch.Tensor)]
    if not is_plain(log_probs, targets, *lengths):
        return "a traced call"
    if any(each.dtype not in _INTEGERS or each.dim() != 1 for each in lengths) or reduction not in range(
        len(REDUCTIONS)
    ):
        return "arguments that PyTorch refuses"
    return _refusal(log_probs, targets, input_lengths, target_lengths, blank)


def _run_composed(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    labels = _numbers(target_lengths)
    # With PyTorch's formula for its gradient: both are routes.
    found = torch.ops.aten._ctc_loss(log_probs, targets, _numbers(input_lengths), labels, blank, zero_infinity)[0]
    return reduced(found, labels, REDUCTIONS[reduction], zero_infinity)


for _overload in (".IntList", ".Tensor"):
    route(
        f"aten::ctc_loss{_overload}", _composed_refusal, _CONDITIONS, group="ctc_loss", compiled=False, level="Autograd"
    )(_run_composed)

# The overload of tensors is the same operator of lengths that are tensors.
for _overload in ("", ".Tensor"):
    route(f"aten::_ctc_loss{_overload}", _refusal, _CONDITIONS, group="ctc_loss", whole=True)(_run)
    route(f"aten::_ctc_loss_backward{_overload}", _backward_refusal, _CONDITIONS, group="ctc_loss", whole=True)(
        _run_backward
    )
