# SPDX-License-Identifier: Apache-2.0
"""The oracle is judged here, without the library: what it imports, and whether frameworks agree with it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import peers
import pytest
from lattice import (
    integers,
    lattice_grid_case,
    lattice_roi_case,
    lattice_ruled_grid_case,
    lattice_theta,
    normal,
    quantized_case,
    random_grid_case,
    random_roi_case,
    segment_case,
)

import verify
from verify.bounds import Sum, bound
from verify.definitions.affine_grid import affine_grid, affine_grid_backward
from verify.definitions.dequantize import dequantize_per_channel, dequantize_per_channel_backward
from verify.definitions.grid_sample import grid_sample_2d, grid_sample_2d_backward, source_position
from verify.definitions.pad import pad, pad_backward
from verify.definitions.roi_align import roi_align, roi_align_backward
from verify.definitions.segment import unsorted_segment_argmax, unsorted_segment_max, unsorted_segment_max_backward
from verify.dtypes import Array, rounded

VERIFY = Path(verify.__file__).parent
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules that statements import, whole names."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("module", sorted(VERIFY.glob("definitions/*.py")), ids=lambda path: path.stem)
def test_definitions_import_numpy_and_themselves_only(module: Path) -> None:
    found = imported(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    own = {name for name in found if name.startswith("verify.definitions.")} | {"verify.bounds", "verify.dtypes"}
    assert found <= {"__future__", "collections.abc", "numpy", "typing", *own}


@pytest.mark.parametrize(
    "module", sorted(VERIFY.rglob("*.py")), ids=lambda path: ".".join(path.relative_to(VERIFY).with_suffix("").parts)
)
def test_nothing_of_the_library_is_used_to_verify_it(module: Path) -> None:
    """Not even by name; what else is no part of Python comes lazily, but for NumPy and ml_dtypes."""
    text = module.read_text(encoding="utf-8")
    tree = ast.parse(text)
    roots = {name.partition(".")[0] for name in imported(ast.walk(tree))} - set(sys.stdlib_module_names)
    assert roots <= {"verify", "numpy", "ml_dtypes", "torch", "cupy", "cuda", "tqdm"}
    lazily = {name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for name in imported(ast.walk(node))}
    at_once = {name.partition(".")[0] for name in imported(ast.walk(tree)) - lazily} - set(sys.stdlib_module_names)
    assert at_once <= {"verify", "numpy", "ml_dtypes"}
    code = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "pybaracuda"]
    assert not code, "imported by its name"


def peer_named(request: pytest.FixtureRequest, name: str) -> str:
    """The peer; a test of an absent PyTorch is skipped through its fixture."""
    if name == "torch":
        request.getfixturevalue("torch")
    return name


def assert_peer_agrees(peer: Array | None, expected: Sum, slack: Any = 0.0) -> None:
    """A float64 result of another implementation within the bound, and within what its positions may differ by."""
    if peer is None:
        return
    allowed = expected.bound(F64) + slack
    assert peer.shape == expected.value.shape
    error = np.abs(peer - expected.value)
    assert (error <= allowed).all(), f"off by {error.max()}"


def dot(one: Array, two: Array) -> float:
    return float(np.sum(one.astype(np.float64) * two.astype(np.float64)))


@pytest.mark.parametrize("coordinate_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [1, 2, 4, -1])
def test_roi_align_is_adjoint(
    rng: np.random.Generator, sampling_ratio: int, aligned: bool, coordinate_dtype: Any
) -> None:
    case = lattice_roi_case(rng, np.float64, sampling_ratio, aligned)
    options = {**case.options, "coordinate_dtype": coordinate_dtype}
    output = roi_align(case.input, case.boxes, case.output_size, **options)
    gradient = roi_align_backward(case.grad_output, case.boxes, case.input.shape, **options)
    assert dot(output.value, case.grad_output) == dot(case.input, gradient.value)
    # The lattice keeps its promise: every value is a float32, whatever the order of the sum.
    for part in (output.value, output.magnitude, gradient.value, gradient.magnitude):
        assert (part == part.astype(np.float32)).all()
        assert (part * 2**12 == np.rint(part * 2**12)).all()
        assert np.abs(part).max() < 2**12


@pytest.mark.parametrize("peer", peers.ROI_PEERS)
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [1, 3, -1])
def test_roi_align_agrees_with_peers(rng: np.random.Generator, peer: str, sampling_ratio: int, aligned: bool) -> None:
    scale = float(np.float32(0.3))
    case = peers.roi_case(
        peer, random_roi_case(rng, np.float64, sampling_ratio, aligned, scale, (2, 2, 7, 6), (2, 3), 10)
    )
    output, grad_input = peers.roi_align(peer, case)
    expected = roi_align(case.input, case.boxes, case.output_size, **case.options)
    assert_peer_agrees(output, expected)
    gradient = roi_align_backward(case.grad_output, case.boxes, case.input.shape, **case.options)
    assert_peer_agrees(grad_input, gradient)


def test_roi_align_by_hand() -> None:
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    # One bin, one sample at (1.5, 0.5): the mean of four neighbours.
    output = roi_align(image, [[0, 1, 0, 2, 1]], (1, 1), sampling_ratio=1)
    assert output.value.item() == (1 + 2 + 5 + 6) / 4
    assert output.terms.item() == 4
    # Half a pixel to the left and up when aligned: exactly on pixel (1, 0), one tap.
    output = roi_align(image, [[0, 1, 0, 2, 1]], (1, 1), sampling_ratio=1, aligned=True)
    assert output.value.item() == 1
    assert output.terms.item() == 1
    # Beyond the border by up to one pixel the edge counts, then nothing does.
    for x, expected in ((-1.0, 4.0), (-1.001, 0.0), (4.0, 7.0), (4.001, 0.0)):
        box = [[0, x - 0.5, 0.5, x + 0.5, 1.5]]
        assert roi_align(image, box, (1, 1), sampling_ratio=1).value.item() == expected
    # Out of range in the batch, not a number, and 2^20 samples a bin and one more.
    for box in ([1, 0, 0, 2, 2], [-1, 0, 0, 2, 2], [0, np.nan, 0, 2, 2], [0, 0, 0, np.inf, 2]):
        assert roi_align(image, [box], (1, 1)).terms.sum() == 0
    assert roi_align(image, [[0, 0, 0, 2**20, 2]], (1, 1)).terms.sum() > 0
    assert roi_align(image, [[0, 0, 0, 2**20 + 1, 2]], (1, 1)).terms.sum() == 0


def test_grid_sample_is_adjoint(rng: np.random.Generator) -> None:
    case = lattice_grid_case(rng, np.float64)
    output = grid_sample_2d(case.input, case.grid)
    grad_input, _ = grid_sample_2d_backward(case.grad_output, case.input, case.grid)
    assert dot(output.value, case.grad_output) == dot(case.input, grad_input.value)


def test_grid_gradient_is_the_slope(rng: np.random.Generator) -> None:
    # Bilinear interpolation is linear within a pixel: a central difference there has rounding error only.
    case = random_grid_case(rng, np.float64, (1, 2, 5, 4), (3, 4))
    cell = np.floor(rng.uniform(-1, 4, case.grid.shape)) + rng.uniform(0.25, 0.75, case.grid.shape)
    grid = np.stack([(2 * cell[..., 0] + 1) / 4 - 1, (2 * cell[..., 1] + 1) / 5 - 1], axis=-1)
    _, gradient = grid_sample_2d_backward(case.grad_output, case.input, grid)
    step = 2.0**-6
    for axis in (0, 1):
        moved = np.zeros(2)
        moved[axis] = step
        ahead = grid_sample_2d(case.input, grid + moved)
        behind = grid_sample_2d(case.input, grid - moved)
        slope = np.sum((ahead.value - behind.value) * case.grad_output, axis=1) / (2 * step)
        scale = np.sum((ahead.magnitude + behind.magnitude) * np.abs(case.grad_output), axis=1) / (2 * step)
        # 4 taps and 4 roundings each way, 2 channels, and coordinates rounded when moved: 2^-53 of 5 pixels.
        allowed = bound(F64, 24, scale) + 5 * 2.0**-52 * np.abs(case.input).max() * 16
        assert (np.abs(slope - gradient.value[..., axis]) <= allowed).all()


@pytest.mark.parametrize("peer", peers.GRID_PEERS)
def test_grid_sample_agrees_with_peers_exactly_on_the_lattice(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str
) -> None:
    case = lattice_grid_case(rng, np.float32, (2, 2, 4, 8), (3, 5))
    output, grad_input, grad_grid = peers.grid_sample(peer_named(request, peer), case)
    expected_input, expected_grid = grid_sample_2d_backward(case.grad_output, case.input, case.grid)
    assert (output == grid_sample_2d(case.input, case.grid).value).all()
    assert grad_input is None or (grad_input == expected_input.value).all()
    assert grad_grid is None or (grad_grid == expected_grid.value).all()


@pytest.mark.parametrize("peer", ["torch", "jax"])  # ONNX's evaluator rounds positions to float32
def test_grid_sample_agrees_with_peers(request: pytest.FixtureRequest, rng: np.random.Generator, peer: str) -> None:
    case = random_grid_case(rng, np.float64)
    output, grad_input, grad_grid = peers.grid_sample(peer_named(request, peer), case)
    slack = peers.grid_sample_slack(case)
    expected_input, expected_grid = grid_sample_2d_backward(case.grad_output, case.input, case.grid)
    assert_peer_agrees(output, grid_sample_2d(case.input, case.grid), slack[0])
    assert_peer_agrees(grad_input, expected_input, slack[1])
    assert_peer_agrees(grad_grid, expected_grid, slack[2])


@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("peer", ["torch", "onnx"])
def test_grid_sample_in_every_mode_agrees_with_peers(
    request: pytest.FixtureRequest,
    rng: np.random.Generator,
    peer: str,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> None:
    rule: dict[str, Any] = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    if peer == "onnx" and (mode, padding_mode) == ("nearest", "reflection"):
        return  # there a position is rounded before it is reflected
    if peer == "onnx" and mode == "bicubic":
        return  # its evaluator computes weights in float32; test_onnx.py compares them
    frame = peer_named(request, peer)
    # On the lattice all arithmetic is exact, ties and borders included.
    for shape in ((2, 2, 4, 8), (1, 2, 8, 1), (1, 1, 2, 2)):
        if peer == "onnx" and 1 in shape[2:]:
            continue  # its evaluator divides by an extent of 0 there
        # Products of two bicubic weights have more bits than float32.
        dtype = np.float64 if mode == "bicubic" else np.float32
        case = lattice_ruled_grid_case(rng, dtype, align_corners, shape, (3, 20))
        output, grad_input, grad_grid = peers.grid_sample(frame, case, **rule)
        expected_input, expected_grid = grid_sample_2d_backward(case.grad_output, case.input, case.grid, **rule)
        np.testing.assert_array_equal(output, grid_sample_2d(case.input, case.grid, **rule).value)
        assert grad_input is None or (grad_input == expected_input.value).all()
        assert grad_grid is None or (grad_grid == expected_grid.value).all()
    if peer == "onnx":
        return  # its evaluator rounds positions to float32
    # Anywhere, a position may differ in its last bits; samples within these of a place where the rule jumps, that is
    # of a tie of nearest pixels or a kink of the gradient, are left out.
    case = random_grid_case(rng, np.float64, (2, 3, 6, 7), (7, 9))
    case = case._replace(grid=case.grid * 3)
    doubled = [source_position(case.grid[..., axis], extent, align_corners) * 2 for axis, extent in ((0, 7), (1, 6))]
    assert min(np.abs(np.stack(doubled) - np.rint(doubled)).min(), 1) > 1e-9
    output, grad_input, grad_grid = peers.grid_sample(frame, case, **rule)
    # The slopes of an axis' bicubic weights sum to at most 3 and their curvatures to 12, beside weights that sum to at
    # most 11/8; of bilinear ones it is 2.
    slack = tuple((9 if mode == "bicubic" else 1) * each for each in peers.grid_sample_slack(case))
    expected_input, expected_grid = grid_sample_2d_backward(case.grad_output, case.input, case.grid, **rule)
    assert_peer_agrees(output, grid_sample_2d(case.input, case.grid, **rule), slack[0])
    assert_peer_agrees(grad_input, expected_input, slack[1])
    assert_peer_agrees(grad_grid, expected_grid, slack[2])


def test_grid_sample_of_bad_coordinates_by_hand() -> None:
    image = np.ones((1, 1, 2, 2))
    grid = np.array([[np.nan, 0], [0, np.nan], [np.inf, 0], [0, -np.inf], [3e38, 0], [np.inf, np.nan]])
    output = grid_sample_2d(image, grid.reshape(1, 1, 6, 2), coordinate_dtype=np.float32)
    np.testing.assert_array_equal(output.value.ravel(), [np.nan, np.nan, 0, 0, 0, np.nan])
    grad_input, grad_grid = grid_sample_2d_backward(np.ones((1, 1, 1, 6)), image, grid.reshape(1, 1, 6, 2))
    assert not grad_input.terms.any()
    assert not grad_grid.value.any()


@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
def test_grid_sample_of_bad_coordinates_with_padding_by_hand(align_corners: bool) -> None:
    image = np.array([[[[1.0, 2, 3, 4]]]])
    # As float32 the positions of 3e38 and -3e38 overflow, and that of 2^60 is a multiple of the period.
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**60, 1.0])
    grid = np.stack([x, np.zeros(7)], axis=-1).reshape(1, 1, 7, 2)
    nan = np.nan
    for padding_mode, expected in (
        ("border", [nan, 4, 1, 4, 1, 4, 4]),
        ("reflection", [nan, nan, nan, nan, nan, 1, 4]),
    ):
        rule: dict[str, Any] = {
            "padding_mode": padding_mode, "align_corners": align_corners, "coordinate_dtype": np.float32,
        }  # fmt: skip
        output = grid_sample_2d(image, grid, **rule)
        np.testing.assert_array_equal(output.value.ravel(), expected)
        grad_input, grad_grid = grid_sample_2d_backward(np.ones((1, 1, 1, 7)), image, grid, **rule)
        assert not grad_grid.value.any()  # at and beyond the ends nothing moves
        assert grad_input.value.sum() == np.isfinite(expected).sum()


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grid_is_adjoint(rng: np.random.Generator, align_corners: bool) -> None:
    # 1, 2, 4, ... and with corners 2, 3, 5, ... pixels: the base coordinates are exact.
    for size in ((2, 1, 5, 9), (2, 1, 3, 5, 9)) if align_corners else ((2, 1, 4, 8), (2, 1, 2, 4, 8)):
        axes = len(size) - 2
        theta, gradient = lattice_theta(rng, 2, F64, axes), integers(rng, (2, *size[2:], axes), F64)
        grid = affine_grid(theta, size, align_corners)
        assert dot(grid.value, gradient) == dot(theta, affine_grid_backward(gradient, size, align_corners).value)


@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
@pytest.mark.parametrize("size", [(2, 1, 5, 7), (1, 1, 1, 6), (1, 1, 64, 33), (2, 1, 4, 5, 7), (1, 1, 1, 1, 3)])
def test_affine_grid_agrees_with_torch(
    torch: Any, rng: np.random.Generator, size: tuple[int, ...], align_corners: bool
) -> None:
    n, _, *extents = size
    axes = len(extents)
    theta, gradient = normal(rng, (n, axes, axes + 1), F64), normal(rng, (n, *extents, axes), F64)
    grid, grad_theta = peers.affine_grid("torch", theta, size, gradient, align_corners)
    base = peers.base_slack(F64)
    assert_peer_agrees(grid, affine_grid(theta, size, align_corners), base * np.abs(theta).sum())
    expected = affine_grid_backward(gradient, size, align_corners)
    assert_peer_agrees(grad_theta, expected, base * np.abs(gradient).sum())


def test_affine_grid_agrees_with_onnx_exactly_on_the_lattice(rng: np.random.Generator) -> None:
    for size in ((2, 1, 4, 8), (2, 1, 2, 4, 8)):
        theta = lattice_theta(rng, 2, np.float32, len(size) - 2)
        grid, _ = peers.affine_grid("onnx", theta, size, np.zeros((2, *size[2:], len(size) - 2), np.float32))
        assert (grid == affine_grid(theta, size).value).all()


PADS = [((4,), (1,), (2,)), ((3, 5), (0, 2), (1, 0)), ((2, 3, 4), (0, 1, 3), (2, 0, 1))]
CROP = ((4, 5), (-1, 2), (2, -3))  # np.pad, which ONNX's evaluator calls, has no such thing


@pytest.mark.parametrize(
    ("peer", "shape", "low", "high"),
    [(peer, *problem) for peer in peers.PAD_PEERS for problem in (*PADS, *([] if peer == "onnx" else [CROP]))],
)
def test_pad_agrees_with_peers(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str, shape: Any, low: Any, high: Any
) -> None:
    values = normal(rng, shape, F64)
    expected = pad(values, low, high, value=1.5)
    gradient = normal(rng, expected.shape, F64)
    output, grad_input = peers.pad(peer_named(request, peer), values, low, high, 1.5, gradient)
    np.testing.assert_array_equal(output, expected)
    expected_gradient = pad_backward(gradient, low, high).value
    assert grad_input is None or (grad_input == expected_gradient).all()
    zero_padded = pad(integers(rng, shape, F64), low, high)
    whole = integers(rng, expected.shape, F64)
    inner = pad_backward(zero_padded, low, high).value
    assert dot(zero_padded, whole) == dot(inner, pad_backward(whole, low, high).value)


@pytest.mark.parametrize("peer", peers.SEGMENT_PEERS)
def test_segment_max_agrees_with_peers_without_ties(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str
) -> None:
    case = segment_case(rng, np.float64, np.int64, ties=False)
    output, grad_input = peers.segment_max(peer_named(request, peer), case)
    np.testing.assert_array_equal(unsorted_segment_max(case.input, case.segment_ids, case.num_segments), output)
    expected = unsorted_segment_max_backward(case.grad_output, case.input, case.segment_ids)
    np.testing.assert_array_equal(expected, grad_input)


def test_segment_argmax_by_hand() -> None:
    nan, inf = np.nan, np.inf
    column = np.array([1, 5, 5, -0.0, 0.0, -inf, nan, 7, nan, 2, 2])[:, None]
    ids = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 9, -1])
    arg = unsorted_segment_argmax(column, ids, 5)
    np.testing.assert_array_equal(arg[:, 0], [1, 3, 5, 6, -1])
    best = unsorted_segment_max(column, ids, 5)[:, 0]
    np.testing.assert_array_equal(best, [5, -0.0, -inf, nan, -inf])
    assert np.signbit(best[1])
    gradient = unsorted_segment_max_backward(np.arange(1.0, 6.0)[:, None], column, ids)
    np.testing.assert_array_equal(gradient[:, 0], [0, 1, 0, 2, 0, 3, 4, 0, 0, 0, 0])


def test_segment_gradient_conserves_its_sum(rng: np.random.Generator) -> None:
    case = segment_case(rng, np.float64)
    gradient = integers(rng, case.grad_output.shape, F64, 9)
    filled = np.unique(case.segment_ids[(case.segment_ids >= 0) & (case.segment_ids < case.num_segments)])
    routed = unsorted_segment_max_backward(gradient, case.input, case.segment_ids)
    np.testing.assert_array_equal(routed.sum(axis=0), gradient[filled].sum(axis=0))


@pytest.mark.parametrize("peer", peers.DEQUANTIZE_PEERS)
@pytest.mark.parametrize("quantized", [np.int8, np.uint8])
def test_dequantize_agrees_with_peers(
    request: pytest.FixtureRequest, rng: np.random.Generator, peer: str, quantized: Any
) -> None:
    case = quantized_case(rng, np.float32, quantized, (3, 4, 5), 1)
    output = peers.dequantize(peer_named(request, peer), case)
    expected = dequantize_per_channel(case.input, case.scale, case.zero_point, case.axis)
    # Some of torch's paths fold -scale * zero_point into a fused multiply-add: two roundings of |scale| * 383.
    allowed = 0.0 if peer == "onnx" else bound(F32, 2, np.abs(case.scale).max() * (255 + 128))
    assert (np.abs(output - expected.rounded(F32)) <= allowed).all()


def test_dequantize_is_adjoint(rng: np.random.Generator) -> None:
    values, gradient = integers(rng, (3, 4, 5), F64), integers(rng, (3, 4, 5), F64)
    scale = np.array([0.5, 2.0, 0.25, 1.0])
    output = dequantize_per_channel(values, scale, np.zeros(4), 1)
    assert dot(output.value, gradient) == dot(values, dequantize_per_channel_backward(gradient, scale, 1).value)


def test_rounding_to_bfloat16_happens_once() -> None:
    from verify.dtypes import DTYPES

    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40
    np.testing.assert_array_equal(
        rounded(np.array([just_above_a_tie, 1 + 2.0**-8, -just_above_a_tie]), DTYPES["bf16"]).astype(np.float64),
        [1 + 2.0**-7, 1.0, -1 - 2.0**-7],
    )
