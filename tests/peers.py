# SPDX-License-Identifier: Apache-2.0
"""The same operators in PyTorch, JAX and ONNX's reference evaluator, NumPy in and out; no comparison happens here.

Every function answers None where that framework does not have it (ONNX has no gradients). Frameworks
are imported inside, since PyTorch may be absent.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from lattice import GridCase, QuantizedCase, RoiCase, SegmentCase
from place import available

from verify.dtypes import UNIT_ROUNDOFF, Array

# torch is only there with --with-torch, torchvision only on some machines with a GPU. Neither absence of
# torchvision nor a framework's missing operator is a skip: such a comparison does not exist.
GRID_PEERS = ["torch", "jax", "onnx"]
PAD_PEERS = ["torch", "jax", "onnx"]
SEGMENT_PEERS = ["torch", "jax"]
DEQUANTIZE_PEERS = ["torch", "onnx"]
ROI_PEERS = ["onnx", *(["torchvision"] if available("torchvision") else [])]


def _jax_in_float64() -> Any:
    """A context in which JAX keeps float64; its name moved between versions."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64(True)


def onnx_node(operator: str, inputs: Sequence[Array | None], opset: int, **attributes: Any) -> Array:
    """One node's first output, by the reference evaluator; None is an input that is left out."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    given = {f"input{i}": each for i, each in enumerate(inputs) if each is not None}
    names = [f"input{i}" if each is not None else "" for i, each in enumerate(inputs)]
    node = onnx.helper.make_node(operator, names, ["output"], **attributes)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    output = onnx.helper.make_tensor_value_info("output", values[0].type.tensor_type.elem_type, None)
    graph = onnx.helper.make_graph([node], operator, values, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    (result,) = ReferenceEvaluator(model).run(None, given)
    return np.asarray(result)


def grid_sample(
    peer: str, case: GridCase, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> tuple[Array, Array | None, Array | None]:
    """Output, gradient to the input, gradient to the grid; JAX has bilinear samples with zeros outside alone."""
    if peer == "torch":
        import torch

        image = torch.from_numpy(case.input).requires_grad_()
        grid = torch.from_numpy(case.grid).requires_grad_()
        output = torch.nn.functional.grid_sample(image, grid, mode, padding_mode, align_corners)
        output.backward(torch.from_numpy(case.grad_output))
        assert image.grad is not None
        assert grid.grad is not None
        return output.detach().numpy(), image.grad.numpy(), grid.grad.numpy()
    if peer == "jax":
        import jax
        from jax.scipy.ndimage import map_coordinates

        def sample(image: Any, grid: Any) -> Any:
            h, w = image.shape[2:]
            x = ((grid[..., 0] + 1) * w - 1) / 2
            y = ((grid[..., 1] + 1) * h - 1) / 2
            one = lambda plane, y, x: map_coordinates(plane, [y, x], order=1, mode="constant")  # noqa: E731
            return jax.vmap(lambda planes, y, x: jax.vmap(one, (0, None, None))(planes, y, x))(image, y, x)

        with _jax_in_float64():
            output, vjp = jax.vjp(sample, case.input, case.grid)
            grad_input, grad_grid = vjp(jax.numpy.asarray(case.grad_output))
            return np.asarray(output), np.asarray(grad_input), np.asarray(grad_grid)
    onnx_mode = {"bilinear": "linear"}.get(mode, mode)
    attributes = {"mode": onnx_mode, "padding_mode": padding_mode, "align_corners": int(align_corners)}
    return onnx_node("GridSample", [case.input, case.grid], 20, **attributes), None, None


def position_slack(case: GridCase) -> float:
    """How far two float64 formulas of one position can lie apart, in pixels.

    Each takes at most three roundings of numbers no larger than (|g| + 1) * extent.
    """
    h, w = case.input.shape[2:]
    return float(6 * UNIT_ROUNDOFF["float64"] * (np.abs(case.grid).max() + 1) * max(h, w))


def grid_sample_slack(case: GridCase) -> tuple[float, float, float]:
    """What position_slack can change in output, gradient to the input and gradient to the grid.

    Bilinear interpolation is continuous, with slopes of at most twice the largest value. A pixel
    gets at most every sample's gradient, with weights of slope 1 on two axes. The gradient to the grid is
    extent / 2 times a sum over channels of gradient * difference of two values, of slope twice that.
    """
    slack = position_slack(case)
    value, gradient = np.abs(case.input).max(), np.abs(case.grad_output).max()
    samples, channels = case.grid.shape[1] * case.grid.shape[2], case.input.shape[1]
    extent = max(case.input.shape[2:])
    return (
        float(2 * 2 * value * slack),
        float(2 * samples * gradient * slack),
        float(extent / 2 * channels * gradient * 4 * value * slack),
    )


def affine_grid(
    peer: str, theta: Array, size: tuple[int, ...], grad_grid: Array, align_corners: bool = False
) -> tuple[Array, Array | None]:
    """Grid and gradient to theta."""
    if peer == "torch":
        import torch

        matrices = torch.from_numpy(theta).requires_grad_()
        grid = torch.nn.functional.affine_grid(matrices, list(size), align_corners=align_corners)
        grid.backward(torch.from_numpy(grad_grid))
        assert matrices.grad is not None
        return grid.detach().numpy(), matrices.grad.numpy()
    return onnx_node("AffineGrid", [theta, np.array(size, np.int64)], 20, align_corners=int(align_corners)), None


def base_slack(dtype: Any) -> float:
    """How far torch's base coordinate (a scaled linspace) and the closed form can lie apart.

    linspace's step, product and sum and the factor (W - 1) / W are five roundings of numbers below 2,
    the closed form's division and difference two: 14 unit roundoffs.
    """
    return 14 * UNIT_ROUNDOFF[np.dtype(dtype).name]


# What the peers call our modes; JAX has NumPy's. Only the last has symmetric.
PAD_MODES_OF = {
    "torch": {"reflect": "reflect", "replicate": "replicate", "circular": "circular"},
    "onnx": {"reflect": "reflect", "replicate": "edge", "circular": "wrap"},
    "jax": {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "symmetric": "symmetric"},
}


def pad_in_mode(
    peer: str, input: Array, low: Sequence[int], high: Sequence[int], mode: str, grad_output: Array
) -> tuple[Array, Array | None]:
    """Padding that repeats the input, and its gradient by autograd; none of the peers has negative pads here."""
    name = PAD_MODES_OF[peer][mode]
    if peer == "torch":
        import torch

        # torch pads the last axes alone, and wants two in front of them.
        source = torch.from_numpy(input).requires_grad_()
        first = next((axis for axis, pads in enumerate(zip(low, high, strict=True)) if any(pads)), input.ndim - 1)
        widths = [width for pair in reversed(list(zip(low[first:], high[first:], strict=True))) for width in pair]
        output = torch.nn.functional.pad(
            source.reshape(1, 1, *input.shape[first:]) if first == 0 else source, widths, name
        )
        output = output.reshape(grad_output.shape)
        output.backward(torch.from_numpy(grad_output))
        assert source.grad is not None
        return output.detach().numpy(), source.grad.numpy()
    if peer == "jax":
        import jax

        with _jax_in_float64():
            widths_ = list(zip(low, high, strict=True))
            padded, vjp = jax.vjp(lambda source: jax.numpy.pad(source, widths_, mode=name), jax.numpy.asarray(input))
            return np.asarray(padded), np.asarray(vjp(jax.numpy.asarray(grad_output))[0])
    return onnx_node("Pad", [input, np.array([*low, *high], np.int64)], 19, mode=name), None


def pad(
    peer: str, input: Array, low: Sequence[int], high: Sequence[int], value: float, grad_output: Array
) -> tuple[Array, Array | None]:
    """Constant padding and its gradient; ONNX's evaluator has no negative pads."""
    if peer == "torch":
        import torch

        source = torch.from_numpy(input).requires_grad_()
        widths = [width for pair in reversed(list(zip(low, high, strict=True))) for width in pair]
        output = torch.nn.functional.pad(source, widths, "constant", value)
        output.backward(torch.from_numpy(grad_output))
        assert source.grad is not None
        return output.detach().numpy(), source.grad.numpy()
    if peer == "jax":
        import jax

        with _jax_in_float64():
            fill = jax.numpy.asarray(value, input.dtype)
            interior = [(before, after, 0) for before, after in zip(low, high, strict=True)]
            padded, vjp = jax.vjp(lambda source: jax.lax.pad(source, fill, interior), jax.numpy.asarray(input))
            return np.asarray(padded), np.asarray(vjp(jax.numpy.asarray(grad_output))[0])
    pads = np.array([*low, *high], np.int64)
    return onnx_node("Pad", [input, pads, np.array(value, input.dtype)], 18, mode="constant"), None


def segment_max(peer: str, case: SegmentCase) -> tuple[Array, Array]:
    """Maximum and gradient. Both split the gradient of ties evenly where we give it to the first row."""
    if peer == "torch":
        import torch

        # torch has no rule for ids out of range: a row more on each side takes them.
        ids = np.clip(case.segment_ids.astype(np.int64), -1, case.num_segments) + 1
        rows = torch.from_numpy(case.input).requires_grad_()
        empty = torch.full((case.num_segments + 2, rows.shape[1]), -torch.inf, dtype=rows.dtype)
        index = torch.from_numpy(ids)[:, None].expand(-1, rows.shape[1])
        output = empty.scatter_reduce(0, index, rows, "amax")[1:-1]
        output.backward(torch.from_numpy(case.grad_output))
        assert rows.grad is not None
        return output.detach().numpy(), rows.grad.numpy()
    import jax

    with _jax_in_float64():
        largest, vjp = jax.vjp(
            lambda rows: jax.ops.segment_max(rows, case.segment_ids, case.num_segments), jax.numpy.asarray(case.input)
        )
        return np.asarray(largest), np.asarray(vjp(jax.numpy.asarray(case.grad_output))[0])


def dequantize(peer: str, case: QuantizedCase) -> Array:
    """Dequantized float32 values."""
    if peer == "torch":
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # quantized tensors are deprecated, which is not our matter here
            quantized = torch._make_per_channel_quantized_tensor(
                torch.from_numpy(case.input),
                torch.from_numpy(case.scale.astype(np.float64)),
                torch.from_numpy(case.zero_point.astype(np.int64)),
                case.axis,
            )
            return quantized.dequantize().numpy()
    zero_point = case.zero_point.astype(case.input.dtype)
    return onnx_node("DequantizeLinear", [case.input, case.scale, zero_point], 19, axis=case.axis)


def roi_case(peer: str, case: RoiCase) -> RoiCase:
    """The case, its boxes turned upright where the peer cannot take reversed ones.

    torchvision 0.26.0 on the CPU sizes a vector by the adaptive sample count, which is negative for a
    reversed aligned box: it throws "cannot create std::vector larger than max_size()". Unaligned boxes are
    at least 1 x 1, and a fixed count samples reversed boxes backwards.
    """
    if peer != "torchvision" or case.options["sampling_ratio"] > 0 or not case.options["aligned"]:
        return case
    corners = case.boxes[:, 1:].reshape(-1, 2, 2)
    upright = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return case._replace(boxes=np.concatenate([case.boxes[:, :1], upright], axis=1))


def roi_align(peer: str, case: RoiCase) -> tuple[Array, Array | None]:
    """Output and gradient to the input. ONNX takes its scale in float32."""
    if peer == "torchvision":
        import torch
        import torchvision

        image = torch.from_numpy(case.input).requires_grad_()
        output = torchvision.ops.roi_align(image, torch.from_numpy(case.boxes), case.output_size, **case.options)
        output.backward(torch.from_numpy(case.grad_output))
        assert image.grad is not None
        return output.detach().numpy(), image.grad.numpy()
    options = case.options
    output = onnx_node(
        "RoiAlign",
        [case.input, np.ascontiguousarray(case.boxes[:, 1:]), case.boxes[:, 0].astype(np.int64)],
        16,
        output_height=case.output_size[0],
        output_width=case.output_size[1],
        sampling_ratio=max(options["sampling_ratio"], 0),
        spatial_scale=options["spatial_scale"],
        coordinate_transformation_mode="half_pixel" if options["aligned"] else "output_half_pixel",
        mode="avg",
    )
    return output, None
