# SPDX-License-Identifier: Apache-2.0
"""Docstrings of functions on tensors, completed as those of the array functions are; no code that runs at a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..segment.documentation import documented

__all__ = ["documented_of_tensors"]

F = TypeVar("F", bound=Callable[..., Any])


_RAISES = (
    "UnsupportedError: For integers of a width or an operation that is not wired.",
    "TypeError, ValueError, RuntimeError: If an argument has another type, dtype or shape.",
)


def documented_of_tensors(*, returns: str, **parameters: str) -> Callable[[F], F]:
    """Complete a docstring with parameters, errors and notes, of tensors instead of arrays."""
    complete = documented(returns=returns, raises=_RAISES, **parameters)

    def of_tensors(function: F) -> F:
        complete(function)
        if function.__doc__ is not None:
            function.__doc__ = function.__doc__.replace(": array", ": Tensor").replace("array", "tensor")
        return function

    return of_tensors
