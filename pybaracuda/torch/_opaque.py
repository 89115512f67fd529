# SPDX-License-Identifier: Apache-2.0
"""How a kernel becomes an operator that autograd, torch.func and compilers take whole; no kernel is named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.utils import unwrap_dead_wrappers

from ._untraced import untraced

__all__ = ["Differentiable", "define"]

_library = torch.library.Library("pybaracuda", "FRAGMENT")


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any], differentiable: Callable[..., Any]) -> Any:
    """Define ``pybaracuda::...``, which no compiler takes apart.

    Parameters
    ----------
    schema : str
        Without defaults, since PyTorch leaves arguments out that equal theirs.
    run : callable
        Calls the array function.
    fake : callable
        Answers outputs as `run` does, without values: contiguous, since the array functions' are.
    differentiable : callable
        Calls the operator through its :class:`Differentiable`, for those who call it without, as an exported program
        does.
    """
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.pybaracuda, name).default

    # The array function itself stays open to compilers of those who call it.
    def call(*args: Any) -> Any:
        return run(*args)

    def record(keys: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            return differentiable(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *args)

    _library.impl(name, untraced(call), "CompositeExplicitAutograd")
    _library.impl(name, untraced(record), "Autograd", with_keyset=True)
    torch.library.register_fake(f"pybaracuda::{name}", fake, lib=_library)
    return operator


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A function of PyTorch whose derivatives are such functions again, and that torch.vmap calls once for each sample.

    Forward mode has no rule: PyTorch says so.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call it; its arguments have no defaults, which PyTorch would look for in a signature at every call."""
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return super().apply(*args)
        return super(torch.autograd.Function, cls).apply(*unwrap_dead_wrappers(args))

    @classmethod
    def vmap(cls, info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        """Call it for each sample and stack what it answers."""

        def sample(number: int) -> list[Any]:
            return [
                each.select(axis, number) if isinstance(each, torch.Tensor) and axis is not None else each
                for each, axis in zip(args, in_dims, strict=True)
            ]

        def empty_sample() -> list[Any]:
            # What it answers has the shape that a sample's answer would have.
            return [
                each.new_zeros([extent for at, extent in enumerate(each.shape) if at != axis])
                if isinstance(each, torch.Tensor) and axis is not None
                else each
                for each, axis in zip(args, in_dims, strict=True)
            ]

        count = info.batch_size
        answers = [cls.apply(*sample(number)) for number in range(count)] or [cls.apply(*empty_sample())]
        if isinstance(answers[0], tuple):
            stacked = tuple(torch.stack(each)[:count] for each in zip(*answers, strict=True))
            return stacked, (0,) * len(stacked)
        return torch.stack(answers)[:count], 0
