# SPDX-License-Identifier: Apache-2.0
"""Functions with gradients for PyTorch: the array functions' bits, derivatives, torch.func, torch.compile, export."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck

import pybaracuda
import pybaracuda.torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
NUM_SEGMENTS = 4
FUNCTIONS = (
    *("affine_grid", "cross_entropy", "dequantize_per_channel", "gather_csr", "grid_sample", "interpolate", "nll_loss"),
    *("histc", "kthvalue", "median", "mode", "nanmedian"),
    *("pad", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_align_3d", "roi_align_levels"),
    *("roi_pool", "segment_csr", "segment_gather", "segment_logsumexp", "segment_max", "segment_mean", "segment_min"),
    *("segment_prod", "segment_softmax", "segment_sum"),
)


class Case(NamedTuple):
    """A function of the package and of pybaracuda.torch, which have the same name and arguments.

    `call` takes either module, what has no gradient and what has one; `backward` answers the array functions' gradients
    of the result's gradient, the result and what has one.
    """

    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    backward: Callable[..., Any]


def segments(name: str, backward: Callable[..., Any], **options: Any) -> Case:
    """A reduction of rows by ids."""
    return Case(
        ((7, 2),),
        lambda m, d, x: getattr(m, name)(x, d.ids, NUM_SEGMENTS, **options),
        backward,
    )


def offsets(reduce: str, backward: Callable[..., Any]) -> Case:
    """A reduction of consecutive rows."""
    return Case(((7, 2),), lambda m, d, x: m.segment_csr(x, d.offsets, reduce), backward)


def padding(mode: str, low: tuple[int, ...], high: tuple[int, ...]) -> Case:
    return Case(
        ((2, 3, 4),),
        lambda m, d, x: m.pad(x, low, high, mode, 2.5 if mode == "constant" else 0),
        lambda p, d, g, y, x: p.pad_backward(g, low, high, mode),
    )


def resized(
    shape: tuple[int, ...], size: tuple[int, ...], mode: str, align_corners: bool | None = None, antialias: bool = False
) -> Case:
    options: dict[str, Any] = {"mode": mode, "align_corners": align_corners, "antialias": antialias}
    return Case(
        (shape,),
        lambda m, d, x: m.interpolate(x, size, **options),
        lambda p, d, g, y, x: p.interpolate_backward(g, shape, **options),
    )


def entropy(shape: tuple[int, ...], reduction: str, label_smoothing: float = 0.0) -> Case:
    """Of weighted classes, some elements being ignored."""

    def options(d: SimpleNamespace, x: Any) -> tuple[Any, ...]:
        return d.weights.to(x.dtype), -1, reduction, label_smoothing

    def targets(d: SimpleNamespace) -> Any:
        return d.targets[:, 0] if len(shape) == 2 else d.targets

    def backward(p: Any, d: SimpleNamespace, g: Any, y: Any, x: Any) -> Any:
        _, sums, total, _ = p.cross_entropy(x, targets(d), *options(d, x), return_sums=True)
        return p.cross_entropy_backward(g, x, targets(d), sums, total, *options(d, x))

    return Case((shape,), lambda m, d, x: m.cross_entropy(x, targets(d), *options(d, x)), backward)


def likelihood(reduction: str) -> Case:
    """The same of log-probabilities."""

    def backward(p: Any, d: SimpleNamespace, g: Any, y: Any, x: Any) -> Any:
        rest = (d.weights.to(x.dtype), -1, reduction)
        total = p.nll_loss(x, d.targets, *rest, return_sums=True)[1]
        return p.nll_loss_backward(g, d.targets, total, x.shape, *rest)

    return Case(((3, 4, 5),), lambda m, d, x: m.nll_loss(x, d.targets, d.weights.to(x.dtype), -1, reduction), backward)


def bags(mode: str) -> Case:
    """Bags of rows of a table, of which one takes no part; sums are weighted."""

    def options(rest: tuple[Any, ...]) -> dict[str, Any]:
        return {"per_sample_weights": rest[0] if rest else None, "padding_idx": 1}

    def backward(p: Any, d: SimpleNamespace, g: Any, y: Any, x: Any, *rest: Any) -> Any:
        _, ids, sizes, *arg = p.embedding_bag(d.words, x, d.begins, mode, **options(rest), return_bags=True)
        given = {"mean": {"bag_sizes": sizes}, "max": {"arg": arg[0] if arg else None}}.get(mode, {})
        slopes = p.embedding_bag_backward(g, d.words, ids, 5, mode, **given, **options(rest))
        return (slopes, p.embedding_bag_weights_backward(g, x, d.words, ids, 1)) if rest else slopes

    shapes = ((5, 4), (7,)) if mode == "sum" else ((5, 4),)
    return Case(shapes, lambda m, d, x, *rest: m.embedding_bag(d.words, x, d.begins, mode, **options(rest)), backward)


def selected(name: str, shape: tuple[int, ...], *options: Any) -> Case:
    """An element of each row along an axis."""
    dim, keepdim = options[-2:]

    def backward(p: Any, d: SimpleNamespace, g: Any, y: Any, x: Any) -> Any:
        places = getattr(p, name)(x, *options)[1]
        return p.value_selecting_reduction_backward(g, places, x.shape, dim, keepdim)

    return Case((shape,), lambda m, d, x: getattr(m, name)(x, *options)[0], backward)


CASES = {
    "kthvalue": selected("kthvalue", (3, 9, 2), 4, 1, False),
    "median": selected("median", (4, 7), -1, True),
    "nanmedian": selected("nanmedian", (5, 40), 0, False),
    "mode": selected("mode", (2, 5, 3), -2, False),
    **{f"embedding_bag-{mode}": bags(mode) for mode in ("sum", "mean", "max")},
    "cross_entropy": entropy((3, 4, 5), "mean"),
    "cross_entropy-smoothed": entropy((3, 4, 5), "sum", 0.25),
    "cross_entropy-rows": entropy((3, 4), "mean", 0.5),
    "cross_entropy-unreduced": entropy((3, 4, 5), "none"),
    "nll_loss": likelihood("mean"),
    "nll_loss-unreduced": likelihood("none"),
    "interpolate-bilinear": resized((2, 2, 5, 4), (7, 8), "bilinear", True),
    "interpolate-bicubic": resized((2, 2, 5, 4), (7, 8), "bicubic"),
    "interpolate-bilinear-antialias": resized((2, 2, 7, 4), (3, 6), "bilinear", True, True),
    "interpolate-bicubic-antialias": resized((2, 2, 7, 4), (3, 6), "bicubic", False, True),
    "interpolate-area": resized((2, 2, 7, 4), (3, 6), "area"),
    "interpolate-linear": resized((2, 3, 7), (12,), "linear"),
    "interpolate-trilinear": resized((1, 2, 3, 2, 4), (4, 4, 3), "trilinear"),
    "interpolate-nearest": resized((2, 2, 5, 4), (3, 9), "nearest"),
    "interpolate-nearest-exact": resized((2, 3, 7), (12,), "nearest-exact"),
    "interpolate-scale": Case(
        ((1, 2, 4, 5),),
        lambda m, d, x: m.interpolate(x, scale_factor=(1.5, 0.7), mode="bilinear"),
        lambda p, d, g, y, x: p.interpolate_backward(g, x.shape, (1.5, 0.7), "bilinear"),
    ),
    "roi_align": Case(
        ((2, 2, 5, 4),),
        lambda m, d, x: m.roi_align(x, d.boxes, (2, 3), 0.5, 2, True),
        lambda p, d, g, y, x: p.roi_align_backward(g, d.boxes, x.shape, 0.5, 2, True),
    ),
    "roi_align-images": Case(
        ((2, 2, 5, 4),),
        lambda m, d, x: m.roi_align(x, [d.boxes[:1, 1:], d.boxes[1:, 1:]], 2),
        lambda p, d, g, y, x: p.roi_align_backward(g, [d.boxes[:1, 1:], d.boxes[1:, 1:]], x.shape),
    ),
    "roi_align_3d": Case(
        ((2, 2, 3, 5, 4),),
        lambda m, d, x: m.roi_align_3d(x, d.boxes_3d, (2, 2, 3), 0.5, 2, True),
        lambda p, d, g, y, x: p.roi_align_3d_backward(g, d.boxes_3d, x.shape, 0.5, 2, True),
    ),
    "roi_align_3d-volumes": Case(
        ((2, 2, 3, 5, 4),),
        lambda m, d, x: m.roi_align_3d(x, [d.boxes_3d[:1, 1:], d.boxes_3d[1:, 1:]], 2),
        lambda p, d, g, y, x: p.roi_align_3d_backward(g, [d.boxes_3d[:1, 1:], d.boxes_3d[1:, 1:]], x.shape),
    ),
    "roi_align_levels": Case(
        ((2, 2, 5, 4), (2, 2, 3, 2)),
        lambda m, d, x, y: m.roi_align_levels([x, y], d.boxes, (2, 3), (0.5, 0.25), 2, True, 4, 3.0),
        lambda p, d, g, out, x, y: p.roi_align_levels_backward(
            g, d.boxes, [x.shape, y.shape], (0.5, 0.25), 2, True, 4, 3.0
        ),
    ),
    "ps_roi_align": Case(
        ((2, 12, 5, 4),),
        lambda m, d, x: m.ps_roi_align(x, d.boxes, (2, 3), 0.5, 2),
        lambda p, d, g, y, x: p.ps_roi_align_backward(g, d.boxes, x.shape, 0.5, 2),
    ),
    "ps_roi_pool": Case(
        ((2, 12, 5, 4),),
        lambda m, d, x: m.ps_roi_pool(x, d.boxes, (2, 3), 0.5),
        lambda p, d, g, y, x: p.ps_roi_pool_backward(g, d.boxes, x.shape, 0.5),
    ),
    "roi_pool": Case(
        ((2, 2, 5, 4),),
        lambda m, d, x: m.roi_pool(x, d.boxes, (2, 3), 0.5),
        lambda p, d, g, y, x: p.roi_pool_backward(
            g, d.boxes, p.roi_pool(x, d.boxes, (2, 3), 0.5, return_argmax=True)[1], x.shape
        ),
    ),
    # A box of no image, and one beside its own.
    "roi_pool-empty": Case(
        ((2, 2, 5, 4),),
        lambda m, d, x: m.roi_pool(x, d.astray, 2),
        lambda p, d, g, y, x: p.roi_pool_backward(
            g, d.astray, p.roi_pool(x, d.astray, 2, return_argmax=True)[1], x.shape
        ),
    ),
    "grid_sample": Case(
        ((2, 2, 5, 4), (2, 3, 2, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid),
        lambda p, d, g, y, x, grid: p.grid_sample_backward(g, x, grid),
    ),
    "grid_sample-reflection": Case(
        ((2, 2, 5, 4), (2, 3, 2, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "bilinear", "reflection", True),
        lambda p, d, g, y, x, grid: p.grid_sample_backward(g, x, grid, "bilinear", "reflection", True),
    ),
    "grid_sample-volumes": Case(
        ((2, 2, 3, 5, 4), (2, 2, 3, 2, 3)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "bilinear", "border"),
        lambda p, d, g, y, x, grid: p.grid_sample_backward(g, x, grid, "bilinear", "border"),
    ),
    "affine_grid": Case(
        ((2, 2, 3),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 3, 4)),
        lambda p, d, g, y, x: p.affine_grid_backward(g, (2, 1, 3, 4)),
    ),
    "affine_grid-aligned": Case(
        ((2, 2, 3),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 3, 4), True),
        lambda p, d, g, y, x: p.affine_grid_backward(g, (2, 1, 3, 4), True),
    ),
    "affine_grid-volumes": Case(
        ((2, 3, 4),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 3, 4, 5), True),
        lambda p, d, g, y, x: p.affine_grid_backward(g, (2, 1, 3, 4, 5), True),
    ),
    "pad-constant": padding("constant", (1, 0, -2), (0, -1, 3)),
    "pad-reflect": padding("reflect", (0, 7, -2), (1, 0, 9)),
    "pad-replicate": padding("replicate", (0, -1, 5), (3, 2, -1)),
    "pad-circular": padding("circular", (5, 0, -1), (0, 7, 6)),
    "pad-symmetric": padding("symmetric", (0, 8, 2), (5, -1, 0)),
    "sum": segments("segment_sum", lambda p, d, g, y, x: p.segment_sum_backward(g, d.ids)),
    "sum-empty_value": segments("segment_sum", lambda p, d, g, y, x: p.segment_sum_backward(g, d.ids), empty_value=3.5),
    "mean": segments("segment_mean", lambda p, d, g, y, x: p.segment_mean_backward(g, d.ids)),
    "max": segments("segment_max", lambda p, d, g, y, x: p.segment_max_backward(g, x, d.ids), empty_value=0),
    "min": segments("segment_min", lambda p, d, g, y, x: p.segment_min_backward(g, x, d.ids), empty_value=0),
    "prod": segments("segment_prod", lambda p, d, g, y, x: p.segment_prod_backward(g, x, y, d.ids)),
    "logsumexp": segments(
        "segment_logsumexp", lambda p, d, g, y, x: p.segment_logsumexp_backward(g, x, y, d.ids), empty_value=0
    ),
    "softmax": segments("segment_softmax", lambda p, d, g, y, x: p.segment_softmax_backward(g, y, d.ids, NUM_SEGMENTS)),
    "sorted-mean": Case(
        ((7, 2),),
        lambda m, d, x: m.segment_mean(x, d.sorted, NUM_SEGMENTS, indices_are_sorted=True),
        lambda p, d, g, y, x: p.segment_mean_backward(g, d.sorted, indices_are_sorted=True),
    ),
    "gather": Case(
        ((NUM_SEGMENTS, 2),),
        lambda m, d, x: m.segment_gather(x, d.ids),
        lambda p, d, g, y, x: p.segment_sum(g, d.ids, NUM_SEGMENTS),
    ),
    "csr-sum": offsets("sum", lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "sum", num_rows=7)),
    "csr-mean": offsets("mean", lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "mean", num_rows=7)),
    "csr-max": Case(
        ((7, 2),),
        lambda m, d, x: m.segment_csr(x, d.offsets, "max", empty_value=0),
        lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "max", input=x),
    ),
    "csr-prod": offsets("prod", lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "prod", input=x, output=y)),
    "csr-logsumexp": Case(
        ((7, 2),),
        lambda m, d, x: m.segment_csr(x, d.offsets, "logsumexp", empty_value=0),
        lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "logsumexp", input=x, output=y),
    ),
    "csr-softmax": offsets("softmax", lambda p, d, g, y, x: p.segment_csr_backward(g, d.offsets, "softmax", output=y)),
    "csr-gather": Case(
        ((NUM_SEGMENTS, 2),),
        lambda m, d, x: m.gather_csr(x, d.offsets, 9),
        lambda p, d, g, y, x: p.segment_csr(g, d.offsets, "sum"),
    ),
}
CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
# Those of grid_sample have forward mode, too: tests/test_grid_sample_derivatives.py.
IN_REVERSE = {name: each for name, each in CASES.items() if "grid_sample" not in name}


@pytest.fixture
def data(rng: np.random.Generator, device: str) -> SimpleNamespace:
    """What has no gradient: ids of which two are out of range and one segment is empty, and so on."""
    ids = rng.permutation([0, 0, 1, 3, 3, -1, 9])
    corners = rng.uniform(0, 4, (3, 2))
    boxes = np.concatenate([rng.integers(0, 2, (3, 1)), corners, corners + rng.uniform(2, 5, (3, 2))], 1)
    low = rng.uniform(0, 3, (3, 3))
    boxes_3d = np.concatenate([rng.integers(0, 2, (3, 1)), low, low + rng.uniform(2, 5, (3, 3))], 1)
    astray = boxes.copy()
    astray[0, 0] = 2
    astray[1, 1:] = [-9, -9, -7, -6]
    return SimpleNamespace(
        device=device,
        astray=torch.tensor(astray, dtype=torch.float32, device=device),
        ids=torch.tensor(ids, device=device),
        sorted=torch.tensor(np.sort(ids), device=device),
        offsets=torch.tensor([0, 2, 2, 5, 6], dtype=torch.int32, device=device),
        boxes=torch.tensor(boxes, dtype=torch.float32, device=device),
        boxes_3d=torch.tensor(boxes_3d, dtype=torch.float32, device=device),
        words=torch.tensor(rng.permutation([0, 1, 2, 3, 4, 4, 2]), device=device),
        begins=torch.tensor([0, 3, 3], device=device),
        targets=torch.tensor(rng.permutation(15).reshape(3, 5) % 5 - 1, device=device),
        weights=torch.tensor([0.5, 1.25, 2.0, 0.75], dtype=torch.float64, device=device),
    )


def drawn(rng: np.random.Generator, case: Case, device: str, dtype: Any = torch.float64) -> list[Any]:
    """Inputs that require a gradient, far enough from each other for finite differences across a maximum."""
    found = []
    for shape in case.shapes:
        steps = rng.permutation(int(np.prod(shape))).reshape(shape)
        values = (steps + rng.uniform(0.2, 0.8, shape)) / max(steps.size, 8) * 1.8 - 0.9
        found.append(torch.tensor(values, dtype=dtype, device=device, requires_grad=True))
    return found


def assert_same_bits(actual: Any, expected: Any) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    width = BITS[actual.element_size()]
    assert torch.equal(actual.detach().contiguous().view(width), expected.detach().contiguous().view(width))


def answers_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


@FLOAT
@CASE
def test_result_and_gradient_have_the_array_functions_bits(
    case: Case, dtype: Any, data: SimpleNamespace, rng: np.random.Generator
) -> None:
    inputs = drawn(rng, case, data.device, dtype)
    result = case.call(pybaracuda.torch, data, *inputs)
    assert result.requires_grad
    assert result.is_contiguous()
    plain = [each.detach() for each in inputs]
    expected = case.call(pybaracuda, data, *plain)
    assert_same_bits(result, expected)
    grad_output = torch.tensor(rng.standard_normal(result.shape), device=data.device).to(dtype)
    for create_graph in (False, True):
        found = torch.autograd.grad(result, inputs, grad_output, create_graph=create_graph, retain_graph=True)
        for mine, wanted in zip(
            found, answers_of(case.backward(pybaracuda, data, grad_output, expected, *plain)), strict=True
        ):
            assert_same_bits(mine, wanted)


@CASE
def test_gradient_is_the_derivative(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    assert gradcheck(lambda *inputs: case.call(pybaracuda.torch, data, *inputs), drawn(rng, case, data.device))


@CASE
def test_second_derivative_is_the_gradients(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    inputs = drawn(rng, case, data.device)
    assert gradgradcheck(lambda *inputs: case.call(pybaracuda.torch, data, *inputs), inputs)


@pytest.mark.parametrize(
    "name", ["roi_align", "roi_pool", "pad-reflect", "mean", "max", "logsumexp", "softmax", "csr-softmax"]
)
def test_third_derivative_is_the_seconds(name: str, data: SimpleNamespace, rng: np.random.Generator) -> None:
    case = CASES[name]
    inputs = drawn(rng, case, data.device)

    def slope(x: Any) -> Any:
        result = case.call(pybaracuda.torch, data, x)
        return torch.autograd.grad(result.pow(3).sum(), x, create_graph=True)[0]

    assert gradgradcheck(slope, inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["prod", "csr-prod"])
def test_third_derivative_of_a_product_is_refused(name: str, data: SimpleNamespace, rng: np.random.Generator) -> None:
    inputs = drawn(rng, CASES[name], data.device)
    result = CASES[name].call(pybaracuda.torch, data, *inputs)
    (grad,) = torch.autograd.grad(result.sum(), inputs, create_graph=True)
    (second,) = torch.autograd.grad(grad.pow(2).sum(), inputs, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivative"):
        torch.autograd.grad(second.sum(), inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_second_derivative_of_a_product_with_zeros(dtype: Any, data: SimpleNamespace, rng: np.random.Generator) -> None:
    """Segments with no zero, one, two and three of them, and rows of no segment, some of which are NaN."""
    ids = torch.tensor(np.repeat([0, 1, 2, 3, NUM_SEGMENTS, -1], 5), device=data.device)
    steps = rng.permutation(60).reshape(30, 2)
    values = torch.tensor(0.5 + steps / 60, device=data.device).to(dtype)
    for zeros in (1, 2, 3):
        values[5 * zeros : 5 * zeros + zeros] = 0
    order = torch.tensor(rng.permutation(30), device=data.device)
    rows, ids = values[order], ids[order]
    weights, others = (torch.tensor(rng.standard_normal(shape)).to(rows) for shape in ((NUM_SEGMENTS, 2), (30, 2)))

    def second(product: Callable[[Any], Any], rows: Any, weights: Any, others: Any) -> Any:
        leaf, given = rows.clone().requires_grad_(), weights.clone().requires_grad_()
        (grad,) = torch.autograd.grad(product(leaf), leaf, given, create_graph=True)
        return torch.autograd.grad(grad, (leaf, given), others)

    def of_torch(rows: Any) -> Any:
        return torch.stack([rows[ids == segment].prod(0) for segment in range(NUM_SEGMENTS)])

    def of_ours(rows: Any) -> Any:
        return pybaracuda.torch.segment_prod(rows, ids, NUM_SEGMENTS)

    wanted = second(of_torch, rows.double(), weights.double(), others.double())
    # By the rows a scale times a product of four rows over one of the two left out (both in [0.5, 1.5)) times a sum of
    # five terms, with fewer than 16 roundings; by the weights a sum of five products of factors, each rounded twice.
    wide, narrow = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps, torch.finfo(dtype).eps
    most, given = float(others.abs().max()), float(weights.abs().max())
    bounds = (16 * wide * given * 5 * most * 1.5**4 / 0.5 + narrow * wanted[0].abs(), 3 * narrow * 5 * most * 1.5**4)
    for one, other, bound in zip(second(of_ours, rows, weights, others), wanted, bounds, strict=True):
        assert one.dtype == dtype
        assert bool(((one.double() - other).abs() <= bound).all())
        assert bool((other != 0).any())
    astray = (ids < 0) | (ids >= NUM_SEGMENTS)
    spoiled = torch.where(astray[:, None], torch.nan, rows)
    found, _ = second(of_ours, spoiled, weights, others.masked_fill(astray[:, None], 0))
    assert bool((found[astray] == 0).all())


def test_every_function_has_its_derivatives_tested(data: SimpleNamespace, rng: np.random.Generator) -> None:
    """Those of dequantize_per_channel are in a test of its own; counts have none."""
    called: set[str] = set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(pybaracuda.torch, name)

    for case in CASES.values():
        case.call(Recorder(), data, *drawn(rng, case, data.device))
    # embedding_bag is none of the array functions' signatures: it has torch's.
    assert called == {"embedding_bag", *FUNCTIONS} - {"dequantize_per_channel", "histc"}


def test_gradient_of_a_product_is_linear_in_what_comes_back(data: SimpleNamespace, rng: np.random.Generator) -> None:
    rows = drawn(rng, CASES["prod"], data.device)[0].detach()

    def back(grad_output: Any) -> Any:
        return torch.func.vjp(lambda x: pybaracuda.torch.segment_prod(x, data.ids, NUM_SEGMENTS), rows)[1](grad_output)

    grad_output = torch.randn(NUM_SEGMENTS, 2, dtype=torch.float64, device=data.device, requires_grad=True)
    assert gradcheck(back, (grad_output,))


@CASE
def test_vmap_is_a_loop(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    samples = [[each.detach() for each in drawn(rng, case, data.device)] for _ in range(3)]
    stacked = [torch.stack(each, -1) for each in zip(*samples, strict=True)]
    wanted = [case.call(pybaracuda, data, *inputs) for inputs in samples]
    axis = min(wanted[0].dim(), 1)
    function = torch.vmap(lambda *inputs: case.call(pybaracuda.torch, data, *inputs), in_dims=-1, out_dims=axis)
    assert torch.equal(function(*stacked), torch.stack(wanted, axis))


@CASE
def test_vmap_of_grad_is_a_loop(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    samples = [[each.detach() for each in drawn(rng, case, data.device)] for _ in range(3)]
    stacked = [torch.stack(each) for each in zip(*samples, strict=True)]

    def loss(*inputs: Any) -> Any:
        return case.call(pybaracuda.torch, data, *inputs).square().sum()

    every = tuple(range(len(stacked)))
    found = torch.vmap(torch.func.grad(loss, every))(*stacked)
    for number, inputs in enumerate(samples):
        for mine, wanted in zip(found, torch.func.grad(loss, every)(*inputs), strict=True):
            assert torch.equal(mine[number], wanted)


@CASE
def test_jacrev_agrees_with_autograd(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    inputs = [each.detach() for each in drawn(rng, case, data.device)]
    every = tuple(range(len(inputs)))

    def result(*inputs: Any) -> Any:
        return case.call(pybaracuda.torch, data, *inputs)

    def slope(*inputs: Any) -> Any:
        return torch.func.grad(lambda *given: result(*given).pow(3).sum(), every)(*inputs)

    wanted = torch.autograd.functional.jacobian(result, tuple(inputs))
    for mine, other in zip(torch.func.jacrev(result, every)(*inputs), wanted, strict=True):
        assert torch.equal(mine, other)
    hessian = torch.autograd.functional.hessian(lambda *given: result(*given).pow(3).sum(), tuple(inputs))
    for row, others in zip(torch.func.jacrev(slope, every)(*inputs), hessian, strict=True):
        for mine, other in zip(row, others, strict=True):
            torch.testing.assert_close(mine, other)


def test_vmap_of_ids_is_a_loop(data: SimpleNamespace, rng: np.random.Generator) -> None:
    rows = torch.tensor(rng.standard_normal((3, 7, 2)), device=data.device)
    ids = torch.tensor(rng.integers(0, NUM_SEGMENTS, (7, 3)), device=data.device)

    def largest(x: Any, each: Any) -> Any:
        return pybaracuda.torch.segment_max(x, each, NUM_SEGMENTS, return_arg=True)

    values, arg = torch.vmap(largest, in_dims=(0, 1))(rows, ids)
    for number in range(3):
        wanted, row = pybaracuda.segment_max(rows[number], ids[:, number], NUM_SEGMENTS, return_arg=True)
        assert torch.equal(values[number], wanted)
        assert torch.equal(arg[number], row)


def test_a_tensor_that_left_its_transform(data: SimpleNamespace) -> None:
    rows = torch.ones(7, 2, device=data.device)
    left = []

    def loss(x: Any) -> Any:
        left.append(x * 2)
        return x.sum()

    torch.func.grad(loss)(rows)
    found = pybaracuda.torch.segment_sum(left[0], data.ids, NUM_SEGMENTS)
    assert torch.equal(found, pybaracuda.segment_sum(rows * 2, data.ids, NUM_SEGMENTS))


def test_vmap_of_no_samples(data: SimpleNamespace) -> None:
    rows = torch.zeros(0, 7, 2, device=data.device)
    found = torch.vmap(lambda x: pybaracuda.torch.segment_sum(x, data.ids, NUM_SEGMENTS))(rows)
    assert found.shape == (0, NUM_SEGMENTS, 2)


@pytest.mark.parametrize("case", IN_REVERSE.values(), ids=IN_REVERSE.keys())
def test_forward_mode_is_refused(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    inputs = tuple(each.detach() for each in drawn(rng, case, data.device))
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(lambda *given: case.call(pybaracuda.torch, data, *given), inputs, inputs)


@CASE
def test_without_gradients(case: Case, data: SimpleNamespace, rng: np.random.Generator) -> None:
    inputs = drawn(rng, case, data.device)
    wanted = case.call(pybaracuda.torch, data, *inputs)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = case.call(pybaracuda.torch, data, *inputs)
        assert not found.requires_grad
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("ties", ["first", "even"])
@pytest.mark.parametrize("return_arg", [False, True])
@pytest.mark.parametrize("name", ["segment_max", "segment_min", "segment_csr"])
def test_ties(name: str, return_arg: bool, ties: str, data: SimpleNamespace, rng: np.random.Generator) -> None:
    rows = torch.tensor(rng.integers(0, 2, (7, 3)), dtype=torch.float64, device=data.device, requires_grad=True)
    grad_output = torch.tensor(rng.standard_normal((NUM_SEGMENTS, 3)), device=data.device)
    index = data.offsets if name == "segment_csr" else data.ids
    options: dict[str, Any] = {"reduce": "min"} if name == "segment_csr" else {"num_segments": NUM_SEGMENTS}
    found = getattr(pybaracuda.torch, name)(rows, index, return_arg=return_arg, ties=ties, **options)
    if return_arg:
        wanted = getattr(pybaracuda, name)(rows, index, return_arg=True, **options)
        assert torch.equal(found[1], wanted[1])
        assert not found[1].requires_grad
    (grad,) = torch.autograd.grad(answers_of(found)[0], rows, grad_output, create_graph=True)
    if name == "segment_csr":
        expected = pybaracuda.segment_csr_backward(grad_output, index, "min", input=rows, ties=ties)
    else:
        expected = getattr(pybaracuda, f"{name}_backward")(grad_output, rows, index, ties=ties)
    assert_same_bits(grad, expected)
    again = grad_output.clone().requires_grad_()
    function = getattr(pybaracuda.torch, name)
    _, back = torch.func.vjp(lambda x: function(x, index, ties=ties, **options), rows.detach())
    assert gradcheck(lambda g: back(g)[0], (again,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_of_scales(axis: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    shape = (3, 4, 5)
    values = torch.tensor(rng.integers(-128, 128, shape), dtype=torch.int8, device=device)
    scale = torch.tensor(rng.uniform(0.5, 2, shape[axis]), device=device).to(dtype).requires_grad_()
    zero_point = torch.tensor(rng.integers(-9, 9, shape[axis]), dtype=torch.int8, device=device)
    result = pybaracuda.torch.dequantize_per_channel(values, scale, zero_point, axis)
    assert_same_bits(result, pybaracuda.dequantize_per_channel(values, scale.detach(), zero_point, axis))
    grad_output = torch.tensor(rng.standard_normal(shape), device=device).to(dtype)
    (grad,) = torch.autograd.grad(result, scale, grad_output)
    first = np.moveaxis(values.cpu().numpy().astype(float), axis, -1) - zero_point.cpu().numpy()
    terms = first * np.moveaxis(grad_output.double().cpu().numpy(), axis, -1)
    wanted = torch.tensor(terms.sum((0, 1)))
    error = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    bound = error * torch.tensor(np.abs(terms).sum((0, 1)))
    assert bool(((grad.double().cpu() - wanted).abs() <= bound).all())
    if dtype == torch.float64:

        def function(scale: Any) -> Any:
            return pybaracuda.torch.dequantize_per_channel(values, scale, zero_point, axis)

        assert gradcheck(function, (scale,))
        assert gradgradcheck(function, (scale,))


def test_complex_padding_has_derivatives(device: str, rng: np.random.Generator) -> None:
    values = torch.tensor(rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4)), device=device)
    given = values.requires_grad_()
    for mode in ("constant", "reflect", "circular"):

        def function(x: Any, mode: str = mode) -> Any:
            return pybaracuda.torch.pad(x, (2, -1), 5, mode, 2 - 3j if mode == "constant" else 0)

        assert torch.equal(function(given), pybaracuda.pad(given, (2, -1), (5, 5), mode, 2 - 3j))
        assert gradcheck(function, (given,))
        assert gradgradcheck(function, (given,))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64, torch.uint8])
def test_integers_are_padded(dtype: Any, device: str, rng: np.random.Generator) -> None:
    values = torch.tensor(rng.integers(0, 2, (3, 4)), device=device).to(dtype)
    found = pybaracuda.torch.pad(values, 1, (2, 0), "constant", 1)
    assert torch.equal(found, pybaracuda.pad(values, 1, (2, 0), "constant", 1))
    assert torch.equal(found, pybaracuda.torch.pad(values, np.array([1, 1]), [2, 0], value=1))
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_reduced(dtype: Any, data: SimpleNamespace, rng: np.random.Generator) -> None:
    rows = torch.tensor(rng.integers(-99, 99, (7, 2)), device=data.device).to(dtype)
    for name in ("segment_sum", "segment_prod", "segment_max", "segment_min"):
        found = getattr(pybaracuda.torch, name)(rows, data.ids, NUM_SEGMENTS)
        assert torch.equal(found, getattr(pybaracuda, name)(rows, data.ids, NUM_SEGMENTS))


def test_strided_inputs_and_gradients(data: SimpleNamespace, rng: np.random.Generator) -> None:
    rows = torch.tensor(rng.standard_normal((2, 14)), device=data.device).T[::2].requires_grad_()
    result = pybaracuda.torch.segment_logsumexp(rows, data.ids, 2)
    grad_output = torch.tensor(rng.standard_normal((2, 1)), device=data.device).expand(2, 2)
    (grad,) = torch.autograd.grad(result, rows, grad_output)
    dense = rows.detach().contiguous()
    assert_same_bits(grad, pybaracuda.segment_logsumexp_backward(grad_output.contiguous(), dense, result, data.ids))


def test_boxes_of_more_images_than_there_are(data: SimpleNamespace) -> None:
    images = torch.zeros(1, 2, 5, 4, device=data.device)
    with pytest.raises(ValueError, match="holds 2 tensors; input has 1"):
        pybaracuda.torch.roi_align(images, [data.boxes[:1, 1:]] * 2, 2)
    with pytest.raises(ValueError, match=r"boxes\[0\] has shape"):
        pybaracuda.torch.roi_align(images, [data.boxes], 2)
    assert pybaracuda.torch.roi_align(images, [], 2).shape == (0, 2, 2, 2)


def test_pixels_of_pooling(data: SimpleNamespace, rng: np.random.Generator) -> None:
    (images,) = drawn(rng, CASES["roi_pool"], data.device)
    found, pixels = pybaracuda.torch.roi_pool(images, data.astray, (2, 3), 0.5, return_argmax=True)
    wanted, others = pybaracuda.roi_pool(images.detach(), data.astray, (2, 3), 0.5, return_argmax=True)
    assert_same_bits(found, wanted)
    assert torch.equal(pixels, others)
    assert (pixels.dtype, pixels.requires_grad, found.requires_grad) == (torch.int32, False, True)
    assert bool((pixels[0] == -1).all())
    each = [data.boxes[:1, 1:], data.boxes[1:, 1:].double()]
    assert_same_bits(pybaracuda.torch.roi_pool(images, each, 2), pybaracuda.roi_pool(images.detach(), each, 2))
    with pytest.raises(ValueError, match="holds 2 tensors; input has 1"):
        pybaracuda.torch.roi_pool(images[:1], each, 2)


def test_boxes_have_a_gradient_on_request(data: SimpleNamespace, rng: np.random.Generator) -> None:
    (images,) = drawn(rng, CASES["roi_align"], data.device)
    boxes = data.boxes.clone().requires_grad_()
    options = (0.5, 2, True)
    output = pybaracuda.torch.roi_align(images, boxes, (2, 3), *options, boxes_gradient=True)
    plain = pybaracuda.torch.roi_align(images, boxes, (2, 3), *options)
    assert_same_bits(output, plain)
    grad = torch.randn_like(output)
    of_images, of_boxes = torch.autograd.grad(output, (images, boxes), grad, retain_graph=True)
    assert_same_bits(of_images, pybaracuda.roi_align_backward(grad, data.boxes, tuple(images.shape), *options))
    # Boxes of another dtype than the sums' have a gradient of their own.
    wanted = pybaracuda.roi_align_boxes_backward(grad, images.detach(), data.boxes, *options).to(boxes.dtype)
    assert_same_bits(of_boxes, wanted)
    assert of_boxes[:, 1:].any()
    (alone,) = torch.autograd.grad(output, boxes, grad, retain_graph=True)
    assert_same_bits(alone, of_boxes)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(plain, boxes, grad)
    (once,) = torch.autograd.grad(output.square().sum(), boxes, create_graph=True)
    with pytest.raises(NotImplementedError, match="roi_align has no second derivative through the gradient of its"):
        once.sum().backward()
    # Of each image's boxes, too; narrower ones get a gradient of their own dtype.
    parts = [data.boxes[:1, 1:].clone().requires_grad_(), data.boxes[1:, 1:].half().requires_grad_()]
    pybaracuda.torch.roi_align(images, parts, 2, boxes_gradient=True).sum().backward()
    assert parts[0].grad is not None
    assert parts[1].grad is not None
    assert parts[1].grad.dtype == torch.float16


@pytest.mark.parametrize("name", ["roi_align", "roi_pool"])
def test_boxes_have_no_gradient_rather_than_zeros(name: str, data: SimpleNamespace, rng: np.random.Generator) -> None:
    (images,) = drawn(rng, CASES[name], data.device)
    boxes = data.boxes.clone().requires_grad_()
    result = getattr(pybaracuda.torch, name)(images, boxes, 2)
    of_images, of_boxes = torch.autograd.grad(result.sum(), (images, boxes), allow_unused=True)
    assert of_boxes is None
    assert bool((of_images != 0).any())
    # Nor has what the gradient is made of.
    result = getattr(pybaracuda.torch, name)(images, boxes, 2)
    (grad,) = torch.autograd.grad(result.square().sum(), images, create_graph=True)
    again = torch.autograd.grad(grad.sum(), boxes, allow_unused=True)
    assert again == (None,)


def test_errors_are_the_array_functions(data: SimpleNamespace) -> None:
    rows = torch.zeros(7, 2, device=data.device, requires_grad=True)
    with pytest.raises(ValueError, match="segment_ids has shape"):
        pybaracuda.torch.segment_sum(rows, data.ids[:5], NUM_SEGMENTS)
    with pytest.raises(ValueError, match="reduce is 'median'"):
        pybaracuda.torch.segment_csr(rows, data.offsets, "median")
    with pytest.raises(ValueError, match="return_arg: sum"):
        pybaracuda.torch.segment_csr(rows, data.offsets, "sum", return_arg=True)
    with pytest.raises(ValueError, match="empty_value"):
        pybaracuda.torch.segment_csr(rows, data.offsets, "softmax", empty_value=1)
    with pytest.raises(ValueError, match="ties is 'last'"):
        pybaracuda.torch.segment_max(rows, data.ids, NUM_SEGMENTS, ties="last")
    with pytest.raises(pybaracuda.UnsupportedError, match="bicubic"):
        pybaracuda.torch.grid_sample(torch.zeros(1, 1, 2, 2, 2), torch.zeros(1, 1, 1, 1, 3), "bicubic")
    with pytest.raises(pybaracuda.InvalidProblemError):
        pybaracuda.torch.pad(rows, -5, -5)
    with pytest.raises(TypeError, match="int8 or uint8"):
        pybaracuda.torch.dequantize_per_channel(rows, rows[0], data.ids[:2], 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature_is_the_array_functions(name: str) -> None:
    function = getattr(pybaracuda.torch, name)
    mine = inspect.signature(function).parameters
    others = inspect.signature(getattr(pybaracuda, name)).parameters
    wanted = {key: value for key, value in others.items() if key not in ("out", "stream")}
    assert {key: value for key, value in mine.items() if key not in ("ties", "boxes_gradient")} == wanted
    assert name in pybaracuda.torch.__all__
    entries = [line.partition(" :")[0].split(", ") for line in (function.__doc__ or "").splitlines()]
    described = {entry.strip() for line in entries for entry in line}
    assert set(mine) <= described


# One call of every operator that the functions are made of.
def operator_calls(data: SimpleNamespace, rng: np.random.Generator) -> dict[str, list[tuple[Any, ...]]]:
    def rows(*shape: int) -> Any:
        return torch.tensor(rng.standard_normal(shape), device=data.device, requires_grad=True)

    ids, starts = data.ids, data.offsets
    codes = torch.tensor(rng.integers(0, 9, (3, 4)), dtype=torch.uint8, device=data.device)
    pixels = torch.tensor(rng.integers(-2, 22, (3, 2, 2, 3)), dtype=torch.int32, device=data.device)
    best = torch.tensor([[0, 0], [-1, -1], [2, 2], [5, 5]], device=data.device)
    total, means, losses = rows(1).detach() + 9, (-1, "mean"), (None, -1, "none")
    targets, sums = data.targets, rows(3, 5).detach() + 4
    places = torch.tensor(rng.integers(0, 4, (3, 4)), device=data.device)
    words, begins, bag_ids = data.words, data.begins, torch.tensor([0, 0, 0, 2, 2, 2, 2], device=data.device)
    bag_sizes, held = torch.tensor([3, 0, 4], device=data.device), best.clamp(max=4)[:3].repeat(1, 2)
    of_bags = {"sum": (bag_ids[:0], bag_ids[:0]), "mean": (bag_sizes, bag_ids[:0]), "max": (bag_ids[:0], held)}
    log_probs, alphas = rows(4, 1, 3), rows(1, 4, 5).detach()
    aligned = [torch.tensor(each, device=data.device) for each in ([[1, 2]], [4], [2])]
    return {
        "ctc_loss": [(log_probs, *aligned, 0, 2)],
        "ctc_loss_backward": [(rows(1).detach(), log_probs.detach(), *aligned, rows(1).detach(), alphas, 0, False)],
        "embedding_bag": [
            *((rows(5, 4), words, begins, None, mode, 1) for mode in of_bags),
            (rows(5, 4), words, begins, rows(7), "sum", -1),
        ],
        "embedding_bag_backward": [
            *((rows(3, 4), words, bag_ids, *more, None, begins, 5, mode, 1, False) for mode, more in of_bags.items()),
            (rows(3, 4), words, bag_ids, *of_bags["sum"], rows(7), begins, 5, "sum", -1, True),
        ],
        "embedding_bag_weights_backward": [(rows(3, 4), rows(5, 4), words, bag_ids, begins, -1)],
        **{name: [(rows(3, 4), 1, True)] for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")},
        **{
            f"{name}_backward": [(rows(3, 4), rows(3, 4), rows(3, 4).detach(), 1, True)]
            for name in ("cumprod", "logcumsumexp")
        },
        "cummaxmin_backward": [(rows(3, 4), places, 1, True)],
        "kthvalue": [(rows(3, 4), 2, 1, True)],
        **{name: [(rows(3, 4), 1, False)] for name in ("median", "nanmedian", "mode")},
        "value_selecting_reduction_backward": [(rows(3, 4), places, (3, 5, 4), 1, False)],
        # Counts have no derivative.
        "histc": [(rows(3, 4).detach(), 5, -1.0, 1.0)],
        "nll_loss": [(rows(3, 4, 5), targets, data.weights, *means), (rows(3, 4, 5), targets, *losses)],
        "nll_loss_backward": [
            (rows(), targets, total, (3, 4, 5), data.weights, *means),
            (rows(3, 5), targets, total, (3, 4, 5), *losses),
        ],
        "cross_entropy": [
            (rows(3, 4, 5), targets, data.weights, *means, 0.25),
            (rows(3, 4, 5), targets, *losses, 0.0),
        ],
        "cross_entropy_backward": [
            (rows(), rows(3, 4, 5), targets, sums, total, data.weights, *means, 0.25),
            (rows(3, 5), rows(3, 4, 5), targets, sums, total, *losses, 0.0),
        ],
        "roi_align": [(rows(2, 2, 5, 4), data.boxes, 2, 3, 0.5, 2, True)],
        "roi_align_backward": [(rows(3, 2, 2, 3), data.boxes, (2, 2, 5, 4), 0.5, 2, True)],
        # It has no derivative, and says so, which has a test.
        "roi_align_boxes_backward": [(rows(3, 2, 2, 3).detach(), rows(2, 2, 5, 4).detach(), data.boxes, 0.5, 2, True)],
        "roi_align_3d": [(rows(2, 2, 3, 5, 4), data.boxes_3d, 2, 2, 3, 0.5, 2, True)],
        "roi_align_3d_backward": [(rows(3, 2, 2, 2, 3), data.boxes_3d, (2, 2, 3, 5, 4), 0.5, 2, True)],
        "roi_align_levels": [([rows(2, 2, 5, 4), rows(2, 2, 3, 2)], data.boxes, 2, 3, [0.5, 0.25], 2, True, 4, 4, 3.0)],
        "roi_align_levels_backward": [
            (rows(3, 2, 2, 3), data.boxes, (2, 2, 5, 4, 2, 2, 3, 2), [0.5, 0.25], 2, True, 4, 4, 3.0)
        ],
        "nms": [(data.boxes[:, 1:].contiguous(), data.boxes[:, 0].contiguous(), each, 0.5) for each in (None, ids[:3])],
        "ps_roi": [(rows(2, 12, 5, 4), data.boxes, 2, 3, 0.5, samples, 2) for samples in (True, False)],
        "ps_roi_backward": [
            (rows(3, 2, 2, 3), data.boxes, (2, 12, 5, 4), 0.5, samples, 2) for samples in (True, False)
        ],
        "roi_pool": [(rows(2, 2, 5, 4), data.boxes, 2, 3, 0.5)],
        "roi_pool_backward": [(rows(3, 2, 2, 3), data.boxes, pixels, (2, 2, 5, 4))],
        "grid_sample": [(rows(1, 2, 5, 4), rows(1, 3, 2, 2), "bilinear", "zeros", False)],
        "grid_sample_backward": [
            (rows(1, 2, 3, 2), rows(1, 2, 5, 4), rows(1, 3, 2, 2), "bilinear", "border", True, mask)
            for mask in ([True, True], [True, False], [False, True])
        ],
        "deform_conv2d": [
            (rows(1, 2, 4, 3), rows(1, 8, 3, 2), rows(4, 1, 2, 2), mask, (1, 1), (0, 0), (1, 1))
            for mask in (None, rows(1, 4, 3, 2))
        ],
        # It has no derivative, and says so, which has a test.
        "deform_conv2d_backward": [
            (
                *(each.detach() for each in (rows(1, 4, 3, 2), rows(1, 2, 4, 3), rows(1, 8, 3, 2), rows(4, 1, 2, 2))),
                mask,
                (1, 1),
                (0, 0),
                (1, 1),
                wanted,
            )
            for mask, wanted in (
                (None, [True, True, True, False]),
                (rows(1, 4, 3, 2).detach(), [True] * 4),
                (None, [False, False, True, False]),
            )
        ],
        "interpolate": [
            (rows(1, 2, 3, 4), (5, 7), (0.0, 1.7), "linear", False),
            (rows(1, 2, 5), (3,), (), "nearest", False),
            (rows(1, 2, 3, 4), (5, 7), (), "cubic", True),
            (rows(1, 2, 3, 4), (2, 7), (0.7, 1.8), "cubic-antialias", False),
            (rows(1, 2, 3, 4), (2, 7), (), "area", False),
        ],
        "interpolate_backward": [
            (rows(1, 2, 5, 7), (1, 2, 3, 4), (), "linear", True),
            (rows(1, 2, 2, 3, 4), (1, 2, 1, 2, 3), (), "nearest-exact", False),
            (rows(1, 2, 2, 7), (1, 2, 3, 4), (), "linear-antialias", True),
            (rows(1, 2, 2, 3, 4), (1, 2, 1, 2, 3), (), "area", False),
        ],
        "affine_grid": [(rows(2, 2, 3), (2, 1, 3, 4), False), (rows(2, 3, 4), (2, 1, 2, 3, 4), True)],
        "affine_grid_backward": [
            (rows(2, 3, 4, 2), (2, 1, 3, 4), False),
            (rows(2, 2, 3, 4, 3), (2, 1, 2, 3, 4), True),
        ],
        "pad": [(rows(2, 3), (1, -1), (0, 5), "reflect", 0), (rows(2, 3), (1, 1), (0, 5), "constant", 2.5)],
        "pad_backward": [(rows(3, 7), (1, -1), (0, 5), "reflect")],
        "dequantize_per_channel": [(codes, rows(4), torch.zeros(4, dtype=torch.int32, device=data.device), 1)],
        "segment_reduce": [
            *((rows(7, 2), ids, each, "unsorted", NUM_SEGMENTS, None) for each in ("sum", "mean")),
            *((rows(7, 2), starts, each, "csr", NUM_SEGMENTS, 0) for each in ("max", "prod", "logsumexp")),
        ],
        "segment_select": [(rows(7, 2), ids, "max_with_arg", "unsorted", NUM_SEGMENTS, 0)],
        "segment_spread": [
            (rows(NUM_SEGMENTS, 2), ids, "gather", "unsorted", 7),
            (rows(NUM_SEGMENTS, 2), starts, "mean_backward", "csr", 8),
        ],
        "segment_selection_backward": [
            (rows(NUM_SEGMENTS, 2), rows(7, 2), ids, "max_backward", "unsorted", 7),
            (rows(NUM_SEGMENTS, 2), best, ids, "min_with_arg_backward", "unsorted", 7),
        ],
        "segment_reduce_backward": [
            (
                rows(NUM_SEGMENTS, 2),
                rows(7, 2),
                rows(NUM_SEGMENTS, 2).detach(),
                ids,
                "prod_backward",
                "unsorted",
            ),
            (rows(NUM_SEGMENTS, 2), rows(7, 2), rows(NUM_SEGMENTS, 2).detach(), ids, "logsumexp_backward", "unsorted"),
        ],
        "segment_softmax": [(rows(7, 2), ids, "unsorted", NUM_SEGMENTS)],
        "segment_softmax_backward": [(rows(7, 2), rows(7, 2), ids, "unsorted", NUM_SEGMENTS)],
    }


def operator_names() -> set[str]:
    """The library's operators, but for those that compiled programs have in place of PyTorch's."""
    prefix = "pybaracuda::"
    names = {name.removeprefix(prefix) for name in torch._C._dispatch_get_all_op_names() if name.startswith(prefix)}
    return {name for name in names if not name.startswith(("aten_", "torchvision_"))}


def test_every_operator_keeps_pytorchs_rules(data: SimpleNamespace, rng: np.random.Generator) -> None:
    calls = operator_calls(data, rng)
    assert set(calls) == operator_names()
    for name, each in calls.items():
        for args in each:
            torch.library.opcheck(getattr(torch.ops.pybaracuda, name).default, args)


def test_an_operator_called_by_itself_has_its_gradient(data: SimpleNamespace, rng: np.random.Generator) -> None:
    for name, calls in operator_calls(data, rng).items():
        # What answers indices or counts alone has none, nor have the gradients of boxes, deform_conv2d and ctc_loss.
        if name in ("histc", "nms", "roi_align_boxes_backward", "deform_conv2d_backward", "ctc_loss_backward"):
            continue
        for args in calls:
            operator = getattr(torch.ops.pybaracuda, name).default
            flat = [each for arg in args for each in (arg if isinstance(arg, list) else [arg])]
            tensors = [each for each in flat if isinstance(each, torch.Tensor) and each.requires_grad]
            result = answers_of(operator(*args))
            grads = torch.autograd.grad(
                sum(each.square().sum() for each in result if each.is_floating_point()), tensors[0], create_graph=True
            )
            assert grads[0].shape == tensors[0].shape
            assert grads[0].requires_grad, name


def every(data: SimpleNamespace, rng: np.random.Generator) -> tuple[Callable[..., Any], list[Any]]:
    """A program that calls every case, and its inputs."""
    inputs = [drawn(rng, case, data.device) for case in CASES.values()]

    def program(*flat: Any) -> Any:
        total = torch.zeros((), dtype=torch.float64, device=data.device)
        left = list(flat)
        for case in CASES.values():
            given = [left.pop(0) for _ in case.shapes]
            total = total + case.call(pybaracuda.torch, data, *given).square().sum()
        return total

    return program, [each for given in inputs for each in given]


def test_compiled_gradients_are_the_eager_ones(data: SimpleNamespace, rng: np.random.Generator) -> None:
    program, inputs = every(data, rng)
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    for mine, wanted in zip(
        torch.autograd.grad(compiled(*inputs), inputs), torch.autograd.grad(program(*inputs), inputs), strict=True
    ):
        assert_same_bits(mine, wanted)


def test_inductor_calls_the_kernels(data: SimpleNamespace, rng: np.random.Generator) -> None:
    (rows,) = drawn(rng, CASES["max"], data.device, torch.float32)

    def program(rows: Any) -> Any:
        largest = pybaracuda.torch.segment_max(rows, data.ids, NUM_SEGMENTS, empty_value=0)
        return pybaracuda.torch.pad(largest, 1, 2, "reflect") * 2

    compiled = torch.compile(program, fullgraph=True)
    assert_same_bits(compiled(rows), program(rows))
    grad_output = torch.tensor(rng.integers(-4, 4, (7, 5)), dtype=torch.float32, device=data.device)
    (mine,) = torch.autograd.grad(compiled(rows), rows, grad_output)
    (wanted,) = torch.autograd.grad(program(rows), rows, grad_output)
    assert_same_bits(mine, wanted)


def test_compiled_programs_take_other_shapes(device: str) -> None:
    def program(rows: Any, ids: Any) -> Any:
        found = pybaracuda.torch.segment_sum(rows, ids, rows.shape[1] + 1)
        return pybaracuda.torch.pad(found, 1, (rows.shape[0], 2), "circular").square()

    compiled = torch.compile(program, fullgraph=True, dynamic=True, backend="aot_eager")
    for extent in (3, 5, 8):
        rows = torch.randn(extent, extent + 1, device=device, requires_grad=True)
        ids = torch.arange(extent, device=device) // 2
        assert_same_bits(compiled(rows, ids), program(rows, ids))
        (mine,) = torch.autograd.grad(compiled(rows, ids).sum(), rows)
        (wanted,) = torch.autograd.grad(program(rows, ids).sum(), rows)
        assert_same_bits(mine, wanted)


def test_exported_programs_have_gradients(data: SimpleNamespace, rng: np.random.Generator) -> None:
    program, inputs = every(data, rng)

    class Module(torch.nn.Module):
        def forward(self, *flat: Any) -> Any:
            return program(*flat)

    exported = torch.export.export(Module(), tuple(inputs), strict=False)
    called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert {"pybaracuda.roi_align.default", "pybaracuda.segment_reduce.default"} <= called
    again = exported.module()
    assert torch.equal(again(*inputs), program(*inputs))
    for mine, wanted in zip(
        torch.autograd.grad(again(*inputs), inputs), torch.autograd.grad(program(*inputs), inputs), strict=True
    ):
        assert_same_bits(mine, wanted)
