# SPDX-License-Identifier: Apache-2.0
"""Boxes as pooling functions take them: rows that name their image, or one array per image. No operator is named."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from . import _call
from ._arrays import HOST, Operand, read, stream_handle
from ._dtypes import FLOATS

__all__ = ["check_boxes", "check_images", "read_boxes"]


def read_boxes(boxes: Any, first: Operand, stream: Any, corners: int = 4) -> Operand:
    """Read [K, 1 + corners] boxes, or join one [L, corners] array per image into them."""
    if not isinstance(boxes, list | tuple):
        return read("boxes", boxes, stream, first)
    adapter = first.adapter
    handle = None if stream is None or first.device == HOST else stream_handle(stream)
    scope = None if first.device == HOST else adapter.scope(first.device, handle)
    with scope or nullcontext():
        if not boxes:
            dtype = "f64" if first.dtype == "f64" else "f32"
            pointer, memory = adapter.empty(first, (0, 1 + corners), dtype, handle or 0)
            return Operand("boxes", memory, adapter, pointer, (0, 1 + corners), None, dtype, first.device, False)
        parts = [read(f"boxes[{number}]", each, stream, first) for number, each in enumerate(boxes)]
        for part in parts:
            _call.element_of(part.name, part.dtype, FLOATS)
            if len(part.shape) != 2 or part.shape[1] != corners:
                raise ValueError(f"{part.name} has shape {part.shape}; wanted [L, {corners}]")
            if part.adapter is not parts[0].adapter or part.device != parts[0].device:
                raise ValueError(f"{part.name} is another kind of array, or elsewhere, than boxes[0]")
        # In 16 bits an image's index would be rounded from 257 images on.
        dtype = "f64" if any(part.dtype == "f64" for part in parts) else "f32"
        return read("boxes", parts[0].adapter.join_boxes(boxes, dtype), stream, first)


def check_boxes(shape: tuple[int, ...], dtype: str, element: str, corners: int = 4) -> str | None:
    """Answer what boxes of this dtype must be widened to for data of dtype `element`, None if they have it."""
    if len(shape) != 2 or shape[1] != 1 + corners:
        raise ValueError(f"boxes has shape {shape}; wanted [K, {1 + corners}]")
    _call.element_of("boxes", dtype, FLOATS)
    return _call.wider("boxes", dtype, "f64" if element == "f64" else "f32")


def check_images(boxes: Any, name: str, shape: tuple[int, ...]) -> None:
    """Refuse more arrays of boxes than there are images in what `name` says."""
    if type(boxes) in (list, tuple) and len(boxes) > shape[0]:
        raise ValueError(f"boxes holds {len(boxes)} arrays; {name} has {shape[0]} images")
