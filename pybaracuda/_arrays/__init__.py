# SPDX-License-Identifier: Apache-2.0
"""Array interchange: any framework's array as an operand. What is special about one framework is in its own file."""

from __future__ import annotations

from .interface import HOST, Adapter, Operand, dense_strides, one_of_batch, stream_handle
from .recognition import read

__all__ = [
    "HOST",
    "Adapter",
    "Operand",
    "dense_strides",
    "one_of_batch",
    "read",
    "stream_handle",
]
