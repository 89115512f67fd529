# SPDX-License-Identifier: Apache-2.0
"""The library beside PyTorch, JAX and ONNX's reference evaluator, on the CPU; known differences are named here.

Known differences, kept out of the data:
- torch and JAX share a tie's gradient among the equal rows of a segment; here the first row gets it.
- torch's CPU grid_sample and affine_grid form positions and base coordinates in another order, so
  random data are compared in float64 within what that can change; on the lattice all agree exactly.
- ONNX's evaluator rounds grid positions, and AffineGrid's result, to float32, has no negative pads
  and no gradients; it takes roi_align's scale in float32.
- torchvision and ONNX read out of bounds for a batch index out of range; torchvision's CPU kernel throws for
  a reversed box where samples are adaptive and boxes aligned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import peers
import pytest
from lattice import (
    integers,
    lattice_grid_case,
    lattice_theta,
    normal,
    quantized_case,
    random_grid_case,
    random_roi_case,
    segment_case,
)

import pybaracuda
from verify.bounds import Sum, bound
from verify.definitions.affine_grid import affine_grid, affine_grid_backward
from verify.definitions.grid_sample import grid_sample_2d, grid_sample_2d_backward
from verify.definitions.pad import pad_backward
from verify.definitions.roi_align import roi_align, roi_align_backward
from verify.dtypes import Array

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def peer_named(request: pytest.FixtureRequest, name: str) -> str:
    """The peer; a test of an absent PyTorch is skipped through its fixture."""
    if name == "torch":
        request.getfixturevalue("torch")
    return name


def assert_agree(ours: Array, theirs: Array | None, sum: Sum, slack: Any = 0.0) -> None:
    """Two correct results of one float64 sum are at most two bounds apart, and what their positions differ by."""
    if theirs is None:
        return
    assert ours.shape == theirs.shape
    allowed = 2 * sum.bound(F64) + slack
    error = np.abs(ours - theirs)
    assert (error <= allowed).all(), f"off by {error.max()}"


def assert_equal(ours: Array, theirs: Array | None) -> None:
    """The same numbers; the sign of a zero is the framework's own matter."""
    if theirs is not None:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("peer", peers.GRID_PEERS)
def test_grid_sample_on_the_lattice(request: pytest.FixtureRequest, rng: np.random.Generator, peer: str) -> None:
    case = lattice_grid_case(rng, F32, (2, 2, 4, 8), (3, 5))
    output, grad_input, grad_grid = peers.grid_sample(peer_named(request, peer), case)
    ours_input, ours_grid = pybaracuda.grid_sample_backward(case.grad_output, case.input, case.grid)
    assert_equal(pybaracuda.grid_sample(case.input, case.grid), output)
    assert_equal(ours_input, grad_input)
    assert_equal(ours_grid, grad_grid)


@pytest.mark.parametrize("peer", ["torch", "jax"])
def test_grid_sample_on_random_data(request: pytest.FixtureRequest, rng: np.random.Generator, peer: str) -> None:
    case = random_grid_case(rng, F64)
    output, grad_input, grad_grid = peers.grid_sample(peer_named(request, peer), case)
    slack = peers.grid_sample_slack(case)
    ours_input, ours_grid = pybaracuda.grid_sample_backward(case.grad_output, case.input, case.grid)
    sum_input, sum_grid = grid_sample_2d_backward(case.grad_output, case.input, case.grid)
    ours = pybaracuda.grid_sample(case.input, case.grid)
    assert_agree(ours, output, grid_sample_2d(case.input, case.grid), slack[0])
    assert_agree(ours_input, grad_input, sum_input, slack[1])
    assert_agree(ours_grid, grad_grid, sum_grid, slack[2])


@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
@pytest.mark.parametrize("size", [(2, 1, 5, 7), (1, 1, 64, 33), (2, 1, 1, 3), (2, 1, 4, 5, 7)])
def test_affine_grid_beside_torch(
    torch: Any, rng: np.random.Generator, size: tuple[int, ...], align_corners: bool
) -> None:
    n, _, *extents = size
    axes = len(extents)
    theta, gradient = normal(rng, (n, axes, axes + 1), F64), normal(rng, (n, *extents, axes), F64)
    grid, grad_theta = peers.affine_grid("torch", theta, size, gradient, align_corners)
    base = peers.base_slack(F64)
    ours = pybaracuda.affine_grid(theta, size, align_corners)
    assert_agree(ours, grid, affine_grid(theta, size, align_corners), base * np.abs(theta).sum())
    ours = pybaracuda.affine_grid_backward(gradient, size, align_corners)
    expected = affine_grid_backward(gradient, size, align_corners)
    assert_agree(ours, grad_theta, expected, base * np.abs(gradient).sum())


def test_affine_grid_beside_onnx(rng: np.random.Generator) -> None:
    for size in ((2, 1, 4, 8), (2, 1, 2, 4, 8)):
        theta = lattice_theta(rng, 2, F32, len(size) - 2)
        grid, _ = peers.affine_grid("onnx", theta, size, np.zeros((2, *size[2:], len(size) - 2), F32))
        assert_equal(pybaracuda.affine_grid(theta, size), grid)


CONSTANT_PADS = {
    "rank1": ((4,), (1,), (2,)),
    "rank3": ((2, 3, 4), (0, 1, 3), (2, 0, 1)),
    "crop": ((4, 5), (-1, 2), (2, -3)),
}


@pytest.mark.parametrize(
    ("peer", "shape", "low", "high"),
    [
        pytest.param(peer, *problem, id=f"{peer}-{name}")
        for peer in peers.PAD_PEERS
        for name, problem in CONSTANT_PADS.items()
        if (peer, name) != ("onnx", "crop")  # np.pad, which ONNX's evaluator calls, does not crop
    ],
)
@pytest.mark.parametrize("dtype_of_pad", [F32, F64, np.dtype(np.float16)], ids=["f32", "f64", "f16"])
def test_pad(
    request: pytest.FixtureRequest,
    rng: np.random.Generator,
    peer: str,
    dtype_of_pad: Any,
    shape: Any,
    low: Any,
    high: Any,
) -> None:
    values = normal(rng, shape, dtype_of_pad)
    ours = pybaracuda.pad(values, low, high, value=1.5)
    gradient = normal(rng, ours.shape, dtype_of_pad)
    output, grad_input = peers.pad(peer_named(request, peer), values, low, high, 1.5, gradient)
    assert_equal(ours, output)
    assert_equal(pybaracuda.pad_backward(gradient, low, high), grad_input)


# Pads that every peer can do: torch pads up to three last axes, by less than the input (circular: by no more).
NARROW_PADS = [
    ((2, 3, 5), (0, 0, 2), (0, 0, 4)),
    ((2, 3, 5, 7), (0, 0, 1, 6), (0, 0, 4, 0)),
    ((1, 2, 3, 4, 5), (0, 0, 2, 1, 0), (0, 0, 0, 3, 4)),
    ((2, 1, 4, 4), (0, 0, 3, 3), (0, 0, 3, 3)),
]
PAD_PEER_MODES = [(peer, mode) for peer, modes in peers.PAD_MODES_OF.items() for mode in modes]


@pytest.mark.parametrize(("peer", "mode"), PAD_PEER_MODES)
@pytest.mark.parametrize(("shape", "low", "high"), NARROW_PADS, ids=str)
def test_pad_in_the_modes_that_repeat(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str, mode: str, shape: Any, low: Any, high: Any
) -> None:
    values = normal(rng, shape, F64)
    ours = pybaracuda.pad(values, low, high, mode)
    gradient = normal(rng, ours.shape, F64)
    output, grad_input = peers.pad_in_mode(peer_named(request, peer), values, low, high, mode, gradient)
    assert_equal(ours, output)
    expected = pad_backward(gradient, low, high, mode)
    assert_agree(pybaracuda.pad_backward(gradient, low, high, mode), grad_input, expected)


@pytest.mark.parametrize("mode", list(peers.PAD_MODES_OF["jax"]))
@pytest.mark.parametrize(("shape", "low", "high"), [*NARROW_PADS, ((5, 4), (3, 0), (0, 2))], ids=str)
def test_pad_beside_numpy(rng: np.random.Generator, mode: str, shape: Any, low: Any, high: Any) -> None:
    values = rng.integers(-99, 99, shape)
    theirs = np.pad(values, list(zip(low, high, strict=True)), peers.PAD_MODES_OF["jax"][mode])  # type: ignore[call-overload]
    assert_equal(pybaracuda.pad(values, low, high, mode), theirs)


@pytest.mark.parametrize(("shape", "low", "high"), [*NARROW_PADS, ((5, 4), (3, 9), (0, 2))], ids=str)
def test_constant_pad_beside_numpy(rng: np.random.Generator, shape: Any, low: Any, high: Any) -> None:
    values = rng.integers(-99, 99, shape)
    theirs = np.pad(values, list(zip(low, high, strict=True)), constant_values=7)
    assert_equal(pybaracuda.pad(values, low, high, value=7), theirs)


@pytest.mark.parametrize("mode", list(peers.PAD_MODES_OF["jax"]))
@pytest.mark.parametrize("extent", range(1, 7))
def test_pads_of_any_width_beside_numpy_and_jax(mode: str, extent: int) -> None:
    import jax

    values, name = np.arange(extent), peers.PAD_MODES_OF["jax"][mode]
    for low in range(16):
        for high in range(16):
            ours = pybaracuda.pad(values, low, high, mode)
            assert_equal(ours, np.pad(values, (low, high), name))  # type: ignore[call-overload]
            if (low, high) in ((15, 0), (4, 9), (0, 13)):  # JAX compiles each anew
                assert_equal(ours, np.asarray(jax.numpy.pad(values, (low, high), mode=name)))


def test_wide_pads_differ_as_documented(torch: Any) -> None:
    values = np.arange(3.0)
    # The triangle wave; NumPy goes back and forth in pieces and agrees here, torch refuses.
    expected = np.array([1.0, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1, 0])
    assert_equal(pybaracuda.pad(values, 5, 6, "reflect"), expected)
    assert_equal(pybaracuda.pad(values, 5, 6, "circular"), np.arange(-5, 9) % 3)
    for mode in ("reflect", "circular"):
        with pytest.raises(RuntimeError):
            torch.nn.functional.pad(torch.from_numpy(values).reshape(1, 3), (5, 6), mode)
    # One element has nowhere to turn: we repeat it, torch refuses.
    assert_equal(pybaracuda.pad(np.ones(1), 2, 1, "reflect"), np.ones(4))
    with pytest.raises(RuntimeError):
        torch.nn.functional.pad(torch.ones(1, 1), (1, 0), "reflect")


def test_negative_pads_in_reflect_mode_differ_as_documented(torch: Any) -> None:
    values = np.arange(6.0)
    theirs = torch.nn.functional.pad(torch.from_numpy(values).reshape(1, 6), (3, -2), "reflect").numpy()[0]
    ours = pybaracuda.pad(values, 3, -2, "reflect")
    # Cropped to 0 1 2 3 first: the same here, because the pad does not reach what is gone.
    assert_equal(ours, np.array([3.0, 2, 1, 0, 1, 2, 3]))
    assert_equal(theirs, ours)
    theirs = torch.nn.functional.pad(torch.from_numpy(values).reshape(1, 6), (4, -2), "reflect").numpy()[0]
    assert_equal(theirs, np.array([4.0, 3, 2, 1, 0, 1, 2, 3]))  # 4 was cut off
    assert_equal(pybaracuda.pad(values, 4, -2, "reflect"), np.array([2.0, 3, 2, 1, 0, 1, 2, 3]))
    gradient = pybaracuda.pad_backward(np.ones(8), 4, -2, "reflect")
    assert_equal(gradient, np.array([1.0, 2, 3, 2, 0, 0]))


def test_what_torch_does_not_pad(torch: Any, rng: np.random.Generator) -> None:
    for shape, axes in (((3, 2, 2, 3, 2), 4), ((2, 2, 3, 2, 2, 3), 3), ((3, 4), 2), ((5,), 1)):
        values, pads = rng.integers(-9, 9, shape), (0,) * (len(shape) - axes) + (1,) * axes
        for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
            with pytest.raises(RuntimeError):
                torch.nn.functional.pad(torch.from_numpy(values), (1,) * (2 * axes), mode)
            theirs = np.pad(values, [(width, width) for width in pads], name)  # type: ignore[call-overload]
            assert_equal(pybaracuda.pad(values, pads, pads, mode), theirs)
    flags = np.array([True, False, False, True])
    for mode in ("reflect", "replicate"):
        with pytest.raises(RuntimeError):
            torch.nn.functional.pad(torch.from_numpy(flags).reshape(1, 4), (1, 1), mode)
    assert pybaracuda.pad(flags, 1, 1, "reflect").tolist() == [False, True, False, False, True, False]
    assert pybaracuda.pad(flags, 1, 1, "replicate").tolist() == [True, True, False, False, True, True]


@pytest.mark.parametrize("mode", ["replicate", "circular"])
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
def test_negative_pads_beside_torch(torch: Any, mode: str, extent: int) -> None:
    """Reflect has a test of its own: it differs."""
    values = np.arange(1.0, extent + 1)
    source = torch.from_numpy(values).reshape(1, 1, extent)
    for low in range(-extent, extent + 1):
        for high in range(-extent, extent + 1):
            kept = extent + min(low, 0) + min(high, 0)
            if kept > 0:
                if mode == "circular" and max(low, high) > kept:
                    continue  # refused there
                theirs = torch.nn.functional.pad(source, (low, high), mode).numpy().ravel()
                assert_equal(pybaracuda.pad(values, low, high, mode), theirs)
            elif extent + low + high > 0:  # nothing is left to repeat: there, its circular pad is whatever memory held
                with pytest.raises(pybaracuda.InvalidProblemError, match="wanted an element to repeat"):
                    pybaracuda.pad(values, low, high, mode)


def test_cropping_differs_as_documented(torch: Any) -> None:
    import jax

    values = np.arange(3.0)
    with pytest.raises(ValueError, match="negative"):
        jax.numpy.pad(values, (-1, 0))
    with pytest.raises(RuntimeError):
        torch.nn.functional.pad(torch.from_numpy(values), (-4, 0))
    assert_equal(pybaracuda.pad(values, -1, 0), values[1:])
    with pytest.raises(pybaracuda.InvalidProblemError, match="crop below 0"):
        pybaracuda.pad(values, -4, 0)


@pytest.mark.parametrize("peer", peers.SEGMENT_PEERS)
@pytest.mark.parametrize("dtype_of_rows", [F32, F64], ids=["f32", "f64"])
def test_unsorted_segment_max_without_ties(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str, dtype_of_rows: Any
) -> None:
    case = segment_case(rng, dtype_of_rows, np.int64, ties=False)
    # Different by construction: rounding to float32 could make a tie of two random numbers.
    distinct = rng.permutation(case.input.size).reshape(case.input.shape).astype(dtype_of_rows)
    case = case._replace(input=distinct)
    output, grad_input = peers.segment_max(peer_named(request, peer), case)
    assert_equal(pybaracuda.unsorted_segment_max(case.input, case.segment_ids, case.num_segments), output)
    ours = pybaracuda.unsorted_segment_max_backward(case.grad_output, case.input, case.segment_ids)
    assert_equal(ours, grad_input)


@pytest.mark.parametrize("peer", peers.DEQUANTIZE_PEERS)
@pytest.mark.parametrize("quantized", [np.int8, np.uint8], ids=["s8", "u8"])
def test_dequantize_per_channel(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str, quantized: Any
) -> None:
    case = quantized_case(rng, F32, quantized, (3, 4, 5), 1)
    theirs = peers.dequantize(peer_named(request, peer), case)
    ours = pybaracuda.dequantize_per_channel(case.input, case.scale, case.zero_point, case.axis)
    if peer == "onnx":
        assert_equal(ours, theirs)
    else:
        # Some of torch's paths fold -scale * zero_point into a fused multiply-add: two roundings of |scale| * 383.
        allowed = bound(F32, 2, np.abs(case.scale).max() * (255 + 128))
        assert (np.abs(ours - theirs) <= allowed).all()


@pytest.mark.parametrize("peer", peers.ROI_PEERS)
@pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])
@pytest.mark.parametrize("sampling_ratio", [2, 3, -1], ids=["sr2", "sr3", "adaptive"])
def test_roi_align(rng: np.random.Generator, peer: str, sampling_ratio: int, aligned: bool) -> None:
    scale = float(F32.type(0.3))
    case = peers.roi_case(peer, random_roi_case(rng, F64, sampling_ratio, aligned, scale, (2, 2, 7, 6), (2, 3), 10))
    output, grad_input = peers.roi_align(peer, case)
    ours = pybaracuda.roi_align(case.input, case.boxes, case.output_size, **case.options)
    expected = roi_align(case.input, case.boxes, case.output_size, **case.options)
    assert_agree(ours, output, expected)
    ours = pybaracuda.roi_align_backward(case.grad_output, case.boxes, case.input.shape, **case.options)
    expected = roi_align_backward(case.grad_output, case.boxes, case.input.shape, **case.options)
    assert_agree(ours, grad_input, expected)


def test_tie_rules_differ_as_documented(torch: Any) -> None:
    rows = np.array([[2.0], [2.0], [1.0]])
    ids = np.zeros(3, np.int64)
    gradient = np.ones((1, 1))
    case = segment_case(np.random.default_rng(0), F64)._replace(
        input=rows, segment_ids=ids, num_segments=1, grad_output=gradient
    )
    assert_equal(peers.segment_max("torch", case)[1], np.array([[0.5], [0.5], [0.0]]))
    assert_equal(pybaracuda.unsorted_segment_max_backward(gradient, rows, ids), np.array([[1.0], [0.0], [0.0]]))


def test_torch_tensors_in_torch_tensors_out(torch: Any, rng: np.random.Generator) -> None:
    case = random_grid_case(rng, F32)
    output = pybaracuda.grid_sample(torch.from_numpy(case.input), torch.from_numpy(case.grid))
    assert isinstance(output, torch.Tensor)
    assert_equal(output.numpy(), pybaracuda.grid_sample(case.input, case.grid))


def test_jax_arrays_in_jax_arrays_out(rng: np.random.Generator) -> None:
    import jax

    values = integers(rng, (3, 4), F32)
    output = pybaracuda.pad(jax.numpy.asarray(values), (1, 0), (0, 2))
    assert isinstance(output, jax.Array)
    assert_equal(np.asarray(output), pybaracuda.pad(values, (1, 0), (0, 2)))
