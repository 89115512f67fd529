# SPDX-License-Identifier: Apache-2.0
"""Boxes and affine grids on tensors, with gradients; what they compute is in the array functions.

An operator that is linear and its adjoint are each other's derivatives, so those of every order exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._call import extent_pair
from ..affine_grid import affine_grid as affine_grid_of
from ..affine_grid import affine_grid_backward
from ..roi_align import roi_align as align
from ..roi_align import roi_align_backward, roi_align_boxes_backward
from ..roi_pool import roi_pool as pool
from ..roi_pool import roi_pool_backward
from ._opaque import Differentiable, define
from ._segment_operators import gather_rows

__all__ = ["affine_grid", "joined_boxes", "roi_align", "roi_pool"]


def _run_roi_align(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
    return align(input, boxes, (h, w), spatial_scale, ratio, aligned)


def _fake_roi_align(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
    return input.new_empty((boxes.shape[0], input.shape[1], h, w))


_roi_align = define(
    "roi_align(Tensor input, Tensor boxes, SymInt pooled_height, SymInt pooled_width, float spatial_scale, "
    "int sampling_ratio, bool aligned) -> Tensor",
    _run_roi_align,
    _fake_roi_align,
    lambda *args: _RoiAlign.apply(*args),
)


def _run_roi_align_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    return roi_align_backward(grad_output, boxes, tuple(input_shape), spatial_scale, ratio, aligned)


def _fake_roi_align_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    return grad_output.new_empty(input_shape)


_roi_align_backward = define(
    "roi_align_backward(Tensor grad_output, Tensor boxes, SymInt[] input_shape, float spatial_scale, "
    "int sampling_ratio, bool aligned) -> Tensor",
    _run_roi_align_backward,
    _fake_roi_align_backward,
    lambda *args: _RoiAlignBackward.apply(*args),
)


class _RoiAlign(Differentiable):
    """Linear in the input; boxes have no gradient, as in torchvision."""

    @staticmethod
    def forward(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
        return _roi_align(input, boxes, h, w, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, boxes, _, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        grad = _RoiAlignBackward.apply(grad_output, boxes, ctx.shape, *ctx.options)
        return grad, None, None, None, None, None, None


class _RoiAlignBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
    ) -> Any:
        return _roi_align_backward(grad_output, boxes, input_shape, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, boxes, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.pooled = tuple(grad_output.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        return _RoiAlign.apply(grad, boxes, *ctx.pooled, *ctx.options), None, None, None, None, None


def _run_roi_align_boxes_backward(
    grad_output: Any, input: Any, boxes: Any, spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    return roi_align_boxes_backward(grad_output, input, boxes, spatial_scale, ratio, aligned)


def _fake_roi_align_boxes_backward(
    grad_output: Any, input: Any, boxes: Any, spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    wide = torch.float64 if grad_output.dtype == torch.float64 else torch.float32
    return grad_output.new_empty(boxes.shape, dtype=wide)


_roi_align_boxes_backward = define(
    "roi_align_boxes_backward(Tensor grad_output, Tensor input, Tensor boxes, float spatial_scale, "
    "int sampling_ratio, bool aligned) -> Tensor",
    _run_roi_align_boxes_backward,
    _fake_roi_align_boxes_backward,
    lambda *args: _RoiAlignBoxesBackward.apply(*args),
)


class _RoiAlignOfBoxes(Differentiable):
    """Linear in the input, and with a gradient of the boxes."""

    @staticmethod
    def forward(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
        return _roi_align(input, boxes, h, w, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, boxes, _, _, *ctx.options = inputs
        ctx.save_for_backward(input, boxes)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, boxes = ctx.saved_tensors
        of_input = of_boxes = None
        if ctx.needs_input_grad[0]:
            of_input = _RoiAlignBackward.apply(grad_output, boxes, tuple(input.shape), *ctx.options)
        if ctx.needs_input_grad[1]:
            of_boxes = _RoiAlignBoxesBackward.apply(grad_output, input, boxes, *ctx.options).to(boxes.dtype)
        return of_input, of_boxes, None, None, None, None, None


class _RoiAlignBoxesBackward(Differentiable):
    """The gradient of the boxes, which ends here."""

    @staticmethod
    def forward(grad_output: Any, input: Any, boxes: Any, spatial_scale: float, ratio: int, aligned: bool) -> Any:
        return _roi_align_boxes_backward(grad_output, input, boxes, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise NotImplementedError("roi_align has no second derivative through the gradient of its boxes")


def joined_boxes(boxes: Any | Sequence[Any], input: Any, corners: int = 4, *, detached: bool = True) -> Any:
    """Answer one tensor of boxes: from those of each image, in float64 if one of them is, else in float32.

    One tensor stays as it is.
    """
    # No union of types: the compiler of torch 2.9 does not know them.
    if not isinstance(boxes, (list, tuple)):
        return boxes
    if len(boxes) > input.shape[0]:
        raise ValueError(f"boxes holds {len(boxes)} tensors; input has {input.shape[0]} images")
    for number, each in enumerate(boxes):
        if each.dim() != 2 or each.shape[1] != corners:
            raise ValueError(f"boxes[{number}] has shape {tuple(each.shape)}; wanted [L, {corners}]")
    if not boxes:
        return input.new_empty((0, 1 + corners), dtype=torch.float64 if input.dtype == torch.float64 else torch.float32)
    # In 16 bits an image's index would be rounded from 257 images on.
    dtype = torch.float64 if any(each.dtype == torch.float64 for each in boxes) else torch.float32
    rows = [(each.detach() if detached else each).to(dtype) for each in boxes]
    return torch.cat(
        [torch.cat([each.new_full((each.shape[0], 1), number), each], 1) for number, each in enumerate(rows)]
    )


def roi_align(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    boxes_gradient: bool = False,
) -> Any:
    """Average bilinear samples in every bin of every box, as ``torchvision.ops.roi_align`` does.

    Parameters
    ----------
    input : Tensor, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 5], or a sequence of Tensor, [L, 4]
        Rows (batch index, x1, y1, x2, y2) in pixels times 1 / `spatial_scale`, or rows (x1, y1, x2, y2) of each image,
        which are joined by a copy. float64 for float64 input, else float32; narrower floats are widened by a copy.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scale, sampling_ratio, aligned
        As ``pybaracuda.roi_align`` has them.
    boxes_gradient : bool
        Whether boxes that require a gradient get one; torchvision's never do.

    Returns
    -------
    Tensor, [K, C, *output_size]
        Of the input's dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align``; PyTorch's dispatcher refuses, for example, a string for a number: RuntimeError.

    Notes
    -----
    Linear in the input, so derivatives of every order exist. The gradient is that of ``pybaracuda.roi_align_backward``
    and, of the boxes, ``pybaracuda.roi_align_boxes_backward``, which has no further derivative: bit for bit, the same
    on every run, thread count, GPU and backend.
    """
    pooled = extent_pair("output_size", output_size)
    if boxes_gradient:
        rows = joined_boxes(boxes, input, detached=False)
        return _RoiAlignOfBoxes.apply(input, rows, *pooled, spatial_scale, sampling_ratio, aligned)
    return _RoiAlign.apply(input, joined_boxes(boxes, input), *pooled, spatial_scale, sampling_ratio, aligned)


def _run_roi_pool(input: Any, boxes: Any, h: int, w: int, spatial_scale: float) -> Any:
    return pool(input, boxes, (h, w), spatial_scale, return_argmax=True)


def _fake_roi_pool(input: Any, boxes: Any, h: int, w: int, spatial_scale: float) -> Any:
    output = input.new_empty((boxes.shape[0], input.shape[1], h, w))
    return output, torch.empty_like(output, dtype=torch.int32)


_roi_pool = define(
    "roi_pool(Tensor input, Tensor boxes, SymInt pooled_height, SymInt pooled_width, float spatial_scale)"
    " -> (Tensor, Tensor)",
    _run_roi_pool,
    _fake_roi_pool,
    lambda *args: _RoiPool.apply(*args),
)


def _run_roi_pool_backward(grad_output: Any, boxes: Any, argmax: Any, input_shape: Sequence[int]) -> Any:
    return roi_pool_backward(grad_output, boxes, argmax, tuple(input_shape))


def _fake_roi_pool_backward(grad_output: Any, boxes: Any, argmax: Any, input_shape: Sequence[int]) -> Any:
    return grad_output.new_empty(input_shape)


_roi_pool_backward = define(
    "roi_pool_backward(Tensor grad_output, Tensor boxes, Tensor argmax, SymInt[] input_shape) -> Tensor",
    _run_roi_pool_backward,
    _fake_roi_pool_backward,
    lambda *args: _RoiPoolBackward.apply(*args),
)


class _RoiPool(Differentiable):
    """A maximum of the input and the pixels that hold it; boxes have no gradient, as in torchvision."""

    @staticmethod
    def forward(input: Any, boxes: Any, h: int, w: int, spatial_scale: float) -> Any:
        return _roi_pool(input, boxes, h, w, spatial_scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, boxes, *_ = inputs
        _, argmax = output
        ctx.mark_non_differentiable(argmax)
        ctx.save_for_backward(boxes, argmax)
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any, _: Any) -> Any:
        return _RoiPoolBackward.apply(grad_output, *ctx.saved_tensors, ctx.shape), None, None, None, None


class _RoiPoolBackward(Differentiable):
    """The gradient: linear in what comes from the bins, whose pixels stay the same."""

    @staticmethod
    def forward(grad_output: Any, boxes: Any, argmax: Any, input_shape: Sequence[int]) -> Any:
        return _roi_pool_backward(grad_output, boxes, argmax, input_shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, boxes, argmax, ctx.shape = inputs
        ctx.save_for_backward(boxes, argmax)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        boxes, argmax = ctx.saved_tensors
        n, c, h, w = ctx.shape
        # Cut to a whole number as the kernels do.
        image = boxes[:, 0, None, None, None].trunc()
        channel = torch.arange(c, device=argmax.device)[:, None, None]
        held = (image >= 0) & (image < n) & (argmax >= 0) & (argmax < h * w)
        plane = torch.where(held, image, 0).to(torch.int64) * c + channel
        # A bin without pixels names no element.
        elements = torch.where(held, plane * (h * w) + argmax, -1).reshape(-1)
        found = gather_rows(grad.reshape(-1), elements, "unsorted", elements.shape[0])
        return found.reshape(argmax.shape), None, None, None


def roi_pool(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> Any:
    """Take the maximum over the pixels in every bin of every box, as ``torchvision.ops.roi_pool`` does.

    Parameters
    ----------
    input : Tensor, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 5], or a sequence of Tensor, [L, 4]
        Rows (batch index, x1, y1, x2, y2) in pixels times 1 / `spatial_scale`, or rows (x1, y1, x2, y2) of each image,
        which are joined by a copy. float64 for float64 input, else float32; narrower floats are widened by a copy.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes.
    return_argmax : bool
        Whether to answer also which pixel each bin holds: y * W + x in int32, -1 for a bin without pixels.

    Returns
    -------
    Tensor, [K, C, *output_size]
        Of the input's dtype and device; with `return_argmax`, that and the pixels.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_pool``; PyTorch's dispatcher refuses, for example, a string for a number: RuntimeError.

    Notes
    -----
    Derivatives of every order exist, in which the pixels that hold the maxima stay the same; boxes have none, as in
    torchvision. The gradient is that of ``pybaracuda.roi_pool_backward``, bit for bit: the same bits on every run,
    thread count, GPU and backend.
    """
    pooled = extent_pair("output_size", output_size)
    output, argmax = _RoiPool.apply(input, joined_boxes(boxes, input), *pooled, spatial_scale)
    return (output, argmax) if return_argmax else output


def _run_affine_grid(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    return affine_grid_of(theta, tuple(size), align_corners)


def _fake_affine_grid(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    return theta.new_empty((size[0], *size[2:], len(size) - 2))


_affine_grid = define(
    "affine_grid(Tensor theta, SymInt[] size, bool align_corners) -> Tensor",
    _run_affine_grid,
    _fake_affine_grid,
    lambda *args: _AffineGrid.apply(*args),
)


def _run_affine_grid_backward(grad_grid: Any, size: Sequence[int], align_corners: bool) -> Any:
    return affine_grid_backward(grad_grid, tuple(size), align_corners)


def _fake_affine_grid_backward(grad_grid: Any, size: Sequence[int], align_corners: bool) -> Any:
    return grad_grid.new_empty((size[0], len(size) - 2, len(size) - 1))


_affine_grid_backward = define(
    "affine_grid_backward(Tensor grad_grid, SymInt[] size, bool align_corners) -> Tensor",
    _run_affine_grid_backward,
    _fake_affine_grid_backward,
    lambda *args: _AffineGridBackward.apply(*args),
)


class _AffineGrid(Differentiable):
    """Linear in theta."""

    @staticmethod
    def forward(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
        return _affine_grid(theta, size, align_corners)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, *ctx.options = inputs

    @staticmethod
    def backward(ctx: Any, grad_grid: Any) -> Any:
        return _AffineGridBackward.apply(grad_grid, *ctx.options), None, None


class _AffineGridBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(grad_grid: Any, size: Sequence[int], align_corners: bool) -> Any:
        return _affine_grid_backward(grad_grid, size, align_corners)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, *ctx.options = inputs

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _AffineGrid.apply(grad, *ctx.options), None, None


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Any:
    """Make the sampling grid of affine maps, as ``torch.nn.functional.affine_grid`` does.

    Parameters
    ----------
    theta : Tensor, [N, 2, 3] or [N, 3, 4]
        Affine maps in float32 or float64; float16 and bfloat16 are widened to float32 by a copy.
    size : sequence of 4 or 5 int
        Shape (N, C, H, W) of the image or (N, C, D, H, W) of the volume to sample; C does not matter.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost samples or, as by default, their outer edges.

    Returns
    -------
    Tensor, [N, H, W, 2] or [N, D, H, W, 3]
        Positions (x, y) or (x, y, z) in theta's dtype and on its device.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.affine_grid``.

    Notes
    -----
    Linear, so derivatives of every order exist. The gradient is that of ``pybaracuda.affine_grid_backward``, bit for
    bit: the same bits on every run, thread count, GPU and backend.
    """
    return _AffineGrid.apply(theta, tuple(size), align_corners)
