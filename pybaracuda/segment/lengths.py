# SPDX-License-Identifier: Apache-2.0
"""Lengths of segments, of which the offsets are made that kernels take; no operation is named here."""

from __future__ import annotations

from typing import Any

from .. import _call
from .._arrays import HOST, Operand, read
from ..pad import pad
from ..scan import cumsum

__all__ = ["check_naming", "offsets_of"]


def check_naming(offsets: Any, lengths: Any) -> bool:
    """Tell whether segments are named by lengths; refuse both, and neither."""
    if lengths is None:
        if offsets is None:
            raise TypeError("offsets: wanted an array (or lengths instead), got NoneType")
        return False
    if offsets is not None:
        raise TypeError("lengths: wanted None beside offsets, which say the same")
    return True


def offsets_of(lengths: Any, like: Operand, stream: Any) -> Operand:
    """Answer the offsets of segments that lie one behind the other, without a look at the lengths.

    They are the sums of the lengths before each segment and of all, in the lengths' dtype, on the stream of a call
    whose first array is `like`.
    """
    operand = read("lengths", lengths, stream, like)
    _call.element_of("lengths", operand.dtype, ("i32", "i64"))
    _call.check_rank("lengths", operand.shape, "[num_segments]", 1)
    if operand.device == HOST or operand.device != like.device:
        stream = None  # the call itself refuses a stream or arrays of two devices
    elif stream is None:
        stream = like.adapter.current_stream(like.device)
    offsets = cumsum(pad(operand.array, 1, 0, stream=stream), 0, stream=stream)
    return read("lengths", offsets, stream, like)
