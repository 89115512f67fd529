# SPDX-License-Identifier: Apache-2.0
"""The calls of PyTorch that are timed: their sizes, their data, and a tiny problem of each for the host's cost."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.operators.grid_sample import smooth_grid


class Problem(NamedTuple):
    """A function of tensors that takes gradients, and these.

    `ours` is a function of pybaracuda.torch that is called in its place where ours is measured: PyTorch's is composite,
    so that an installation sees its parts alone. Nothing counts such a call, which is ours by what it is.
    """

    function: Callable[..., Any]
    leaves: list[Any]
    ours: Callable[..., Any] | None = None


class Data:
    """Fresh random tensors on a device; the same seed gives the same ones."""

    def __init__(self, torch: Any, device: str, seed: int) -> None:
        self.torch, self.device = torch, device
        self.numpy = np.random.default_rng(seed)
        self._generator = torch.Generator(device).manual_seed(seed)

    def leaf(self, *shape: int) -> Any:
        """Standard normal numbers that take a gradient."""
        return self.normal(*shape).requires_grad_()

    def normal(self, *shape: int) -> Any:
        """Standard normal numbers."""
        return self.torch.randn(shape, generator=self._generator, device=self.device)

    def ids(self, count: int, below: int) -> Any:
        """Integers that are equally likely."""
        return self.torch.randint(0, below, (count,), generator=self._generator, device=self.device)

    def power_law_ids(self, count: int, below: int) -> Any:
        """Integers by Zipf's law with exponent 1: i is as likely as 1 / (i + 1)."""
        uniform = self.torch.rand(count, generator=self._generator, device=self.device, dtype=self.torch.float64)
        return (uniform * math.log(below + 1)).exp().long().sub(1).clamp(max=below - 1)

    def put(self, array: Any) -> Any:
        """An array of NumPy's in float32."""
        return self.torch.from_numpy(array.astype(np.float32)).to(self.device)


Build = Callable[[Data], Problem]


@dataclass(frozen=True)
class Row:
    """One call; `tiny` is the same with sizes that take no time, which `host` names in the table of the host's costs.

    Rows without it differ from another in data alone. `needs` is a module beside torch that has the operator;
    `compiled` says whether compiled programs call our kernels, too; `formula`: whether the gradient is arithmetic of
    PyTorch's around them, which a compiler does in its own way, so that its bits need not be the eager program's.
    `other_gradient`: PyTorch's gradient is not that of its forward, as docs/differences.md says of it, or is one of
    several, so that outputs alone are held beside each other.
    """

    name: str
    build: Build
    tiny: Build
    host: str = ""
    needs: str = ""
    compiled: bool = True
    formula: bool = False
    other_gradient: bool = False


def _pad(shape: Sequence[int], pads: int, mode: str, data: Data) -> Problem:
    pad = importlib.import_module("torch.nn.functional").pad
    widths = [pads] * 2 * (len(shape) - 2)
    return Problem(lambda x: pad(x, widths, mode), [data.leaf(*shape)])


def _interpolate(shape: Sequence[int], mode: str, data: Data) -> Problem:
    resize = importlib.import_module("torch.nn.functional").interpolate
    return Problem(lambda x: resize(x, scale_factor=2, mode=mode), [data.leaf(*shape)])


def _antialiased(shape: Sequence[int], mode: str, data: Data) -> Problem:
    resize = importlib.import_module("torch.nn.functional").interpolate
    return Problem(lambda x: resize(x, scale_factor=0.5, mode=mode, antialias=True), [data.leaf(*shape)])


def _grid_sample(
    shape: tuple[int, int, int, int],
    is_smooth: bool,
    data: Data,
    mode: str = "bilinear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> Problem:
    sample = importlib.import_module("torch.nn.functional").grid_sample
    n, _, h, w = shape
    grid = smooth_grid(n, h, w, data.numpy) if is_smooth else data.numpy.uniform(-1, 1, (n, h, w, 2))
    call = partial(sample, mode=mode, padding_mode=padding, align_corners=align_corners)
    return Problem(call, [data.leaf(*shape), data.put(grid).requires_grad_()])


def _grid_sample_3d(shape: tuple[int, int, int, int, int], mode: str, data: Data, padding: str = "zeros") -> Problem:
    sample = importlib.import_module("torch.nn.functional").grid_sample
    grid = data.numpy.uniform(-1, 1, (shape[0], *shape[2:], 3))
    call = partial(sample, mode=mode, padding_mode=padding, align_corners=False)
    return Problem(call, [data.leaf(*shape), data.put(grid).requires_grad_()])


def _affine_grid(axes: int, n: int, size: int, data: Data) -> Problem:
    affine = importlib.import_module("torch.nn.functional").affine_grid
    sizes = [n, 1, *[size] * axes]
    return Problem(lambda theta: affine(theta, sizes, align_corners=False), [data.leaf(n, axes, axes + 1)])


def _segments_of(rows: int) -> int:
    return -(-rows // 10)


def _anywhere(rows: int, data: Data) -> tuple[int, Any]:
    """A tenth as many segments as rows, and in which of them each row is: each is as likely."""
    segments = _segments_of(rows)
    return segments, data.ids(rows, segments)


def _power_law(rows: int, data: Data) -> tuple[int, Any]:
    """The same, of which a few have most rows."""
    segments = _segments_of(rows)
    return segments, data.power_law_ids(rows, segments)


def _one_destination(rows: int, data: Data) -> tuple[int, Any]:
    """The same, of which one has all rows."""
    segments, ids = _anywhere(rows, data)
    return segments, ids.fill_(segments // 2)


Named = Callable[[int, Data], tuple[int, Any]]


def _scatter_reduce(reduce: str, rows: int, columns: int, data: Data, named: Named = _anywhere) -> Problem:
    segments, ids = named(rows, data)
    index = ids[:, None].expand(-1, columns)
    given, source = data.leaf(segments, columns), data.leaf(rows, columns)
    if reduce == "prod":
        # Products of standard normal numbers would soon be zero.
        source = (1 + source.detach() / 16).requires_grad_()
    return Problem(lambda given, source: given.scatter_reduce(0, index, source, reduce), [given, source])


def _scatter_add(rows: int, columns: int, data: Data) -> Problem:
    segments, ids = _anywhere(rows, data)
    index = ids[:, None].expand(-1, columns)
    leaves = [data.leaf(segments, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.scatter_add(0, index, source), leaves)


def _scatter_elements(places: int, values: int, data: Data) -> Problem:
    index = data.ids(values, places)
    return Problem(lambda given, source: given.scatter_add(0, index, source), [data.leaf(places), data.leaf(values)])


def _gather_elements(rows: int, columns: int, taken: int, data: Data) -> Problem:
    index = data.ids(rows * taken, columns).reshape(rows, taken)
    return Problem(lambda table: table.gather(1, index), [data.leaf(rows, columns)])


def _put(places: int, values: int, data: Data) -> Problem:
    index = data.ids(values, places)
    leaves = [data.leaf(places), data.leaf(values)]
    return Problem(lambda given, source: given.clone().put_(index, source, accumulate=True), leaves)


def _once(rows: int, data: Data) -> Any:
    """Every row in any order: PyTorch's result of several writers is open."""
    return data.torch.from_numpy(data.numpy.permutation(rows)).to(data.device)


def _index_copy(rows: int, columns: int, data: Data) -> Problem:
    index, leaves = _once(rows, data), [data.leaf(rows, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.index_copy(0, index, source), leaves)


def _set_rows(rows: int, columns: int, data: Data) -> Problem:
    index, leaves = _once(rows, data), [data.leaf(rows, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.index_put((index,), source), leaves)


def _scatter_rows(rows: int, columns: int, data: Data) -> Problem:
    index = _once(rows, data)[:, None].expand(-1, columns)
    leaves = [data.leaf(rows, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.scatter(0, index, source), leaves)


def _put_once(places: int, data: Data) -> Problem:
    index, leaves = _once(places, data), [data.leaf(places), data.leaf(places)]
    return Problem(lambda given, source: given.clone().put_(index, source), leaves)


def _index_add(rows: int, columns: int, data: Data, named: Named = _anywhere) -> Problem:
    segments, index = named(rows, data)
    leaves = [data.leaf(segments, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.index_add(0, index, source), leaves)


def _index_put(rows: int, columns: int, data: Data) -> Problem:
    segments, index = _anywhere(rows, data)
    leaves = [data.leaf(segments, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.index_put((index,), source, accumulate=True), leaves)


def _index_select(rows: int, columns: int, data: Data) -> Problem:
    segments, index = _anywhere(rows, data)
    return Problem(lambda table: table.index_select(0, index), [data.leaf(segments, columns)])


def _gather(rows: int, columns: int, data: Data, named: Named = _anywhere) -> Problem:
    segments, ids = named(rows, data)
    index = ids[:, None].expand(-1, columns)
    return Problem(lambda table: table.gather(0, index), [data.leaf(segments, columns)])


def _bags(mode: str, words: int, columns: int, count: int, data: Data, shortest: int = 4, longest: int = 10) -> Problem:
    """Of so many ids each, but for the last one."""
    bag = importlib.import_module("torch.nn.functional").embedding_bag
    lengths = data.numpy.integers(shortest, longest + 1, count // shortest + 1)
    begins = np.cumsum(lengths) - lengths
    offsets = data.torch.from_numpy(begins[begins < count]).to(data.device)
    index = data.ids(count, words)
    return Problem(lambda table: bag(index, table, offsets, mode=mode), [data.leaf(words, columns)])


def _embedding(words: int, columns: int, count: int, data: Data) -> Problem:
    embedding = importlib.import_module("torch.nn.functional").embedding
    index = data.ids(count, words)
    return Problem(lambda table: embedding(index, table), [data.leaf(words, columns)])


def _sparse(rows: int, of_row: int, columns: int, data: Data) -> Problem:
    """A square CSR matrix with as many values in every row, evenly spread from a random place on; gradients by both.

    The matrix is a leaf itself: PyTorch's gradient by values that it is made of in the call goes by a dense matrix.
    """
    torch = data.torch
    begins = torch.arange(0, rows * of_row + 1, of_row, device=data.device)
    steps = torch.arange(of_row, device=data.device) * (rows // of_row)
    places = ((data.ids(rows, rows)[:, None] + steps) % rows).sort(1)[0].reshape(-1)
    matrix = torch.sparse_csr_tensor(begins, places, data.normal(rows * of_row), (rows, rows), check_invariants=False)
    return Problem(torch.sparse.mm, [matrix.requires_grad_(), data.leaf(rows, columns)])


def _index_reduce(reduce: str, rows: int, columns: int, data: Data) -> Problem:
    segments, index = _anywhere(rows, data)
    leaves = [data.leaf(segments, columns), data.leaf(rows, columns)]
    return Problem(lambda given, source: given.index_reduce(0, index, source, reduce), leaves)


def _weighed(entries: int, bins: int, data: Data) -> Problem:
    """Weighted counts have no gradient; the bins are scaled, by what takes one."""
    index, weights = data.ids(entries, bins), data.normal(entries)
    return Problem(lambda scale: data.torch.bincount(index, weights, bins) * scale, [data.leaf(bins)])


def _segment_reduce(reduce: str, rows: int, columns: int, data: Data) -> Problem:
    segments = _segments_of(rows)
    lengths = data.torch.bincount(data.ids(rows, segments), minlength=segments)
    # PyTorch would read the lengths back to check them, and wait.
    call = partial(data.torch.segment_reduce, reduce=reduce, lengths=lengths, axis=0, unsafe=True)
    return Problem(call, [data.leaf(rows, columns)])


def _classified(name: str, shape: Sequence[int], data: Data) -> Problem:
    """A mean over images or rows; PyTorch's cross entropy is a log-softmax and the loss by log-probabilities."""
    functional = importlib.import_module("torch.nn.functional")
    target = data.ids(int(np.prod(shape)) // shape[1], shape[1]).reshape(shape[0], *shape[2:])
    logits = data.leaf(*shape)
    if name == "nll_loss":
        logits = functional.log_softmax(logits.detach(), 1).requires_grad_()
    return Problem(lambda x: getattr(functional, name)(x, target), [logits])


def _fused(shape: Sequence[int], data: Data) -> Problem:
    """Cross entropy beside ours of that name, which writes no log-softmax between."""

    def ours(x: Any) -> Any:
        return importlib.import_module("pybaracuda.torch").cross_entropy(x, target)

    functional = importlib.import_module("torch.nn.functional")
    target = data.ids(int(np.prod(shape)) // shape[1], shape[1]).reshape(shape[0], *shape[2:])
    return Problem(lambda x: functional.cross_entropy(x, target), [data.leaf(*shape)], ours)


def _windows(name: str, shape: Sequence[int], options: dict[str, Any], data: Data) -> Problem:
    """A pooling without boxes."""
    function = getattr(importlib.import_module("torch.nn.functional"), name)
    return Problem(lambda x: function(x, **options), [data.leaf(*shape)])


def _with_channels_last(build: Build, data: Data) -> Problem:
    """A problem of one leaf, whose elements are moved."""
    problem = build(data)
    (leaf,) = problem.leaves
    moved = leaf.detach().contiguous(memory_format=data.torch.channels_last)
    return Problem(problem.function, [moved.requires_grad_()])


def _pooled(name: str, shape: tuple[int, int, int, int], boxes: int, data: Data) -> Problem:
    """Boxes inside the image, sides of 16 to 224 of its pixels, uniformly on a logarithmic axis, at a scale of 1/4."""
    pool = getattr(importlib.import_module("torchvision.ops"), name)
    n, _, h, w = shape
    extent = 4 * np.array([w, h])
    sides = np.minimum(np.exp(data.numpy.uniform(np.log(16), np.log(224), (boxes, 2))), extent)
    corners = data.numpy.uniform(0, 1, (boxes, 2)) * (extent - sides)
    rois = data.put(np.concatenate([data.numpy.integers(0, n, (boxes, 1)), corners, corners + sides], 1))
    options = {"sampling_ratio": 2} if name.endswith("roi_align") else {}
    call = partial(pool, output_size=7, spatial_scale=0.25, **options)
    return Problem(lambda x: call(x, rois), [data.leaf(*shape)])


def _suppressed(count: int, data: Data) -> Problem:
    """Boxes of some objects, moved and scaled a little; which are kept has no gradient: a factor has one."""
    keep = importlib.import_module("torchvision.ops").nms
    centers = data.numpy.uniform(0, 1000, (max(count // 10, 1), 2))
    sides = np.exp(data.numpy.uniform(np.log(16), np.log(224), centers.shape))
    object_of = data.numpy.integers(0, len(centers), count)
    extents = sides[object_of] * np.exp(data.numpy.normal(0, 0.15, (count, 2)))
    corners = centers[object_of] + sides[object_of] * data.numpy.normal(0, 0.15, (count, 2)) - extents / 2
    boxes, scores = data.put(np.concatenate([corners, corners + extents], 1)), data.normal(count)
    return Problem(lambda factor: keep(boxes, scores, 0.7) * factor, [data.leaf(1)])


def _deformed(shape: tuple[int, int, int, int], masked: bool, data: Data) -> Problem:
    """A kernel of 3 x 3 on every pixel, as many channels as before; offsets of some pixels, masks like a sigmoid's."""
    convolve = importlib.import_module("torchvision.ops").deform_conv2d
    n, channels, h, w = shape
    leaves = [data.leaf(*shape), (2 * data.normal(n, 18, h, w)).requires_grad_()]
    leaves.append((data.normal(channels, channels, 3, 3) / (3 * channels**0.5)).requires_grad_())
    if masked:
        leaves.append(data.normal(n, 9, h, w).sigmoid().requires_grad_())
    return Problem(lambda x, offset, weight, mask=None: convolve(x, offset, weight, padding=1, mask=mask), leaves)


_MANY, _FEW, _WIDE = 1_000_000, 100_000, 64
_IMAGES = {1: (16, 64, 16384), 2: (16, 64, 128, 128), 3: (2, 32, 32, 64, 64)}
_MAP = (2, 256, 200, 304)
_PLANES = {2: (16, 64, 128, 128), 3: (2, 32, 32, 64, 64)}
_BIN_MAPS = (2, 490, 50, 76)


def _pad_row(name: str, mode: str, axes: int, pads: int) -> Row:
    sizes = _IMAGES[axes]
    text = f"{name} {pads}, {'x'.join(map(str, sizes))}"
    return Row(
        text,
        partial(_pad, sizes, pads, mode),
        partial(_pad, (1, 1, *[4] * axes), 1, mode),
        name,
        compiled=mode != "constant",
    )


def _of_rows(name: str, build: Callable[..., Problem], rows: int = _MANY) -> Row:
    return Row(f"{name} {rows:,} x {_WIDE}", partial(build, rows, _WIDE), partial(build, 16, 4), name)


def _unpooled(shape: Sequence[int], data: Data) -> Problem:
    """What maxima over windows of two places a side are put back from; `shape` is the result's."""
    functional, axes = importlib.import_module("torch.nn.functional"), len(shape) - 2
    pooled, indices = getattr(functional, f"max_pool{axes}d")(data.leaf(*shape).detach(), 2, return_indices=True)
    function = getattr(functional, f"max_unpool{axes}d")
    return Problem(lambda x: function(x, indices, 2), [pooled.requires_grad_()])


def _placed(shape: Sequence[int], data: Data, part: float = 0.5) -> Problem:
    """Maxima of windows of two places a side, as many as a part of the places, which samples place."""
    axes = len(shape) - 2
    function = getattr(importlib.import_module("torch.nn.functional"), f"fractional_max_pool{axes}d")
    samples = data.put(data.numpy.integers(0, 16, (*shape[:2], axes)) / 16)
    sizes = [int(extent * part) for extent in shape[2:]]
    return Problem(lambda x: function(x, 2, sizes, _random_samples=samples), [data.leaf(*shape)])


def _scanned(name: str, shape: Sequence[int], data: Data) -> Problem:
    """A scan along the last axis; the answer of one that has indices is its values."""
    function = getattr(data.torch, name)

    def values(x: Any) -> Any:
        found = function(x, -1)
        return found[0] if name in ("cummax", "cummin") else found

    return Problem(values, [data.leaf(*shape)])


def _aligned(steps: int, sequences: int, classes: int, labels: int, data: Data) -> Problem:
    """Losses of sequences of all steps, by lengths that the host knows."""
    functional = importlib.import_module("torch.nn.functional")
    targets = 1 + data.ids(sequences * labels, classes - 1).reshape(sequences, labels)
    lengths = [steps] * sequences, [labels] * sequences
    log_probs = data.leaf(steps, sequences, classes).detach().log_softmax(2).requires_grad_()
    return Problem(lambda x: functional.ctc_loss(x, targets, *lengths, reduction="none"), [log_probs])


def _ordered(name: str, shape: Sequence[int], data: Data) -> Problem:
    """An order statistic along the last axis, of which the middle one where it has a rank; the answer is its values."""
    function, rank = getattr(data.torch, name), ((shape[-1] + 1) // 2,) if name == "kthvalue" else ()
    values = data.normal(*shape)
    if name == "mode":
        # Of a row some pairs are equal; one number is more frequent than these, so that there is no other mode.
        values[:, 1:4] = values[:, :1]
    return Problem(lambda x: function(x, *rank, -1)[0], [values.requires_grad_()])


def _counted(count: int, bins: int, reach: float, data: Data) -> Problem:
    """A histogram, which has no gradient: the number that is added has one."""
    histc, values = data.torch.histc, data.normal(count)
    return Problem(lambda x: x + histc(values, bins, -reach, reach), [data.leaf(1)])


def _rows() -> Iterator[Row]:
    for text, is_smooth in (("random", False), ("smooth", True)):
        whole, tiny = (partial(_grid_sample, shape, is_smooth) for shape in ((4, 64, 256, 256), (1, 1, 4, 4)))
        yield Row(f"grid_sample 2d bilinear zeros 4x64x256x256 {text}", whole, tiny, "" if is_smooth else "grid_sample")
    # On CUDA this is cuDNN's.
    whole, tiny = (
        partial(_grid_sample, shape, False, align_corners=True) for shape in ((4, 64, 256, 256), (1, 1, 4, 4))
    )
    yield Row("grid_sample 2d bilinear zeros 4x64x256x256 random, corners aligned", whole, tiny)
    for mode, padding in (
        ("bilinear", "border"),
        ("bilinear", "reflection"),
        *((mode, padding) for mode in ("nearest", "bicubic") for padding in ("zeros", "border", "reflection")),
    ):
        whole, tiny = (
            partial(_grid_sample, shape, False, mode=mode, padding=padding)
            for shape in ((4, 64, 256, 256), (1, 1, 4, 4))
        )
        yield Row(f"grid_sample 2d {mode} {padding} 4x64x256x256 random", whole, tiny)
    for text, mode in (("trilinear", "bilinear"), ("nearest", "nearest")):
        for padding in ("zeros", "border", "reflection"):
            whole, tiny = (
                partial(_grid_sample_3d, shape, mode, padding=padding)
                for shape in ((1, 32, 64, 64, 64), (1, 1, 4, 4, 4))
            )
            yield Row(f"grid_sample 3d {text} {padding} 1x32x64x64x64 random", whole, tiny)
    yield Row(
        "affine_grid 16x512x512", partial(_affine_grid, 2, 16, 512), partial(_affine_grid, 2, 1, 4), "affine_grid"
    )
    yield Row("affine_grid 4x96x96x96", partial(_affine_grid, 3, 4, 96), partial(_affine_grid, 3, 1, 4))
    for axes, pads in ((1, 3), (2, 3), (3, 1)):
        yield _pad_row(f"reflection_pad{axes}d", "reflect", axes, pads)
    for axes, pads in ((1, 3), (2, 3), (3, 1)):
        yield _pad_row(f"replication_pad{axes}d", "replicate", axes, pads)
    yield _pad_row("constant_pad_nd", "constant", 2, 3)
    modes = (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3), ("nearest", 2), ("nearest-exact", 2),
             ("area", 2))  # fmt: skip
    for mode, axes in modes:
        sizes = _IMAGES[axes]
        whole, tiny = partial(_interpolate, sizes, mode), partial(_interpolate, (1, 1, *[4] * axes), mode)
        yield Row(f"interpolate {mode} x2, {'x'.join(map(str, sizes))}", whole, tiny, f"interpolate {mode}")
    for axes in (1, 3):
        sizes = _IMAGES[axes]
        whole, tiny = partial(_interpolate, sizes, "area"), partial(_interpolate, (1, 1, *[4] * axes), "area")
        yield Row(f"interpolate area x2, {'x'.join(map(str, sizes))}", whole, tiny)
    for mode in ("bilinear", "bicubic"):
        name = f"interpolate {mode} antialiased"
        whole, tiny = partial(_antialiased, (16, 64, 256, 256), mode), partial(_antialiased, (1, 1, 4, 4), mode)
        yield Row(f"{name} x1/2, 16x64x256x256", whole, tiny, name)
        yield Row(f"{name} x1/2, 16x64x128x128", partial(_antialiased, (16, 64, 128, 128), mode), tiny)
    for name, options in (("avg_pool2d", {"kernel_size": 2}), ("avg_pool3d", {"kernel_size": 3, "stride": 2}),
                          ("adaptive_avg_pool2d", {"output_size": 7}), ("adaptive_avg_pool2d", {"output_size": 50}),
                          ("adaptive_avg_pool3d", {"output_size": 7}), ("max_pool2d", {"kernel_size": 3, "stride": 2}),
                          ("max_pool3d", {"kernel_size": 3, "stride": 2}),
                          ("adaptive_max_pool2d", {"output_size": 50}),
                          ("adaptive_max_pool3d", {"output_size": 7})):  # fmt: skip
        shape = _PLANES[int(name[-2])]
        whole, tiny = (
            partial(_windows, name, shape, options),
            partial(_windows, name, (1, 1, *[4] * int(name[-2])), options),
        )
        size = next(iter(options.values()))
        group = f"{name}_with_indices" if name.startswith("max") else name
        # A call's cost on the host is measured once for each operator.
        host = "" if name == "adaptive_avg_pool2d" and size != 7 else group
        yield Row(f"{name} {size}, {'x'.join(map(str, shape))}", whole, tiny, host)
    for axes, shape in _PLANES.items():
        options, text = {"kernel_size": 3, "stride": 2, "padding": 1}, "x".join(map(str, shape))
        whole, tiny = (partial(_windows, f"max_pool{axes}d", each, options) for each in (shape, (1, 1, *[4] * axes)))
        yield Row(f"max_pool{axes}d 3, padding 1, {text}", whole, tiny)
    for axes, shape in _PLANES.items():
        whole, tiny = partial(_placed, shape), partial(_placed, (1, 1, *[4] * axes))
        name = f"fractional_max_pool{axes}d"
        yield Row(f"{name} 2, {'x'.join(map(str, shape))}", whole, tiny, name)
    whole, tiny = (partial(_placed, each, part=0.7) for each in (_PLANES[3], (1, 1, 4, 4, 4)))
    yield Row(f"fractional_max_pool3d 2 to 0.7, {'x'.join(map(str, _PLANES[3]))}", whole, tiny)
    for axes, shape in ((1, _IMAGES[1]), *_PLANES.items()):
        whole, tiny = partial(_unpooled, shape), partial(_unpooled, (1, 1, *[4] * axes))
        yield Row(f"max_unpool{axes}d 2, {'x'.join(map(str, shape))}", whole, tiny, f"max_unpool{axes}d")
    for name, shape in (("nll_loss", (8, 21, 512, 512)), ("nll_loss", (8192, 1000)),
                        ("cross_entropy", (8, 21, 512, 512))):  # fmt: skip
        whole, tiny = partial(_classified, name, shape), partial(_classified, name, (2, 3, 4, 4)[: len(shape)])
        host = "" if name == "cross_entropy" else "nll_loss2d" if len(shape) == 4 else "nll_loss"
        yield Row(f"{name} of {'x'.join(map(str, shape))}", whole, tiny, host, formula=name == "cross_entropy")
    whole, tiny = partial(_fused, (8, 21, 512, 512)), partial(_fused, (2, 3, 4, 4))
    yield Row("cross_entropy of pybaracuda.torch of 8x21x512x512", whole, tiny, compiled=False)
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
        # Of products and logarithms PyTorch's gradient is arithmetic around other scans.
        formula, is_compiled = name in ("cumprod", "logcumsumexp"), name in ("cumsum", "cumprod")
        whole, tiny = partial(_scanned, name, (4096, 4096)), partial(_scanned, name, (2, 4))
        yield Row(f"{name} 4096x4096", whole, tiny, name, compiled=is_compiled, formula=formula)
    yield Row("cumsum 16,777,216", partial(_scanned, "cumsum", (1 << 24,)), partial(_scanned, "cumsum", (4,)))
    # Medians' indices and histograms of floats are what PyTorch refuses under its deterministic flag.
    for name, columns in (("kthvalue", 4096), ("median", 4096), ("nanmedian", 4096), ("mode", 2048)):
        whole, tiny = partial(_ordered, name, (4096, columns)), partial(_ordered, name, (2, 4))
        # A mode's gradient goes to any of the places where it stands.
        yield Row(f"{name} 4096x{columns}", whole, tiny, name, other_gradient=name == "mode")
    for text, reach in (("", 0.0), (", of +-4", 4.0)):
        whole, tiny = partial(_counted, 1 << 24, 256, reach), partial(_counted, 4, 3, reach)
        yield Row(f"histc 16,777,216 into 256{text}", whole, tiny, "" if reach else "histc")
    whole, tiny = partial(_aligned, 500, 32, 80, 60), partial(_aligned, 4, 1, 3, 1)
    yield Row("ctc_loss T500 N32 C80 L60", whole, tiny, "ctc_loss")
    pooled: dict[str, tuple[str, dict[str, int]]] = {
        "avg_pool2d 2": ("avg_pool2d", {"kernel_size": 2}),
        "adaptive_avg_pool2d 7": ("adaptive_avg_pool2d", {"output_size": 7}),
        "max_pool2d 3": ("max_pool2d", {"kernel_size": 3, "stride": 2}),
    }
    shapes = _PLANES[2], (2, 8, 16, 16)
    last = f"{'x'.join(map(str, shapes[0]))} channels last"
    for text, (name, options) in pooled.items():
        whole, tiny = (partial(_with_channels_last, partial(_windows, name, each, options)) for each in shapes)
        yield Row(f"{text}, {last}", whole, tiny)
    for mode in ("nearest", "bilinear"):
        whole, tiny = (partial(_with_channels_last, partial(_interpolate, each, mode)) for each in shapes)
        yield Row(f"interpolate {mode} x2, {last}", whole, tiny)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        rows = _FEW if reduce == "prod" else _MANY
        row = _of_rows(f"scatter_reduce {reduce}", partial(_scatter_reduce, reduce), rows)
        yield replace(row, formula=reduce in ("mean", "prod"))
    yield _of_rows("scatter_add of rows", _scatter_add)
    whole, tiny = partial(_scatter_elements, 1 << 22, 1 << 24), partial(_scatter_elements, 4, 16)
    yield Row("scatter_add of 16,777,216 elements into 4,194,304", whole, tiny)
    whole, tiny = partial(_gather_elements, 4096, 1024, 4096), partial(_gather_elements, 2, 4, 4)
    yield Row("gather of 4096x4096 elements from 4096x1024", whole, tiny)
    whole, tiny = partial(_put, _MANY, _MANY), partial(_put, 4, 4)
    yield Row("put_ accumulate 1,000,000 into 1,000,000", whole, tiny, compiled=False)
    for name, build in (("index_copy", _index_copy), ("index_put", _set_rows), ("scatter of rows", _scatter_rows)):
        yield replace(_of_rows(name, build, _FEW), compiled=False)
    yield Row("put_ 1,000,000 into 1,000,000", partial(_put_once, _MANY), partial(_put_once, 4), compiled=False)
    whole, tiny = partial(_weighed, 1 << 24, 1000), partial(_weighed, 16, 4)
    yield Row("bincount 16,777,216 weights into 1,000", whole, tiny, compiled=False)
    yield _of_rows("index_add", _index_add)
    yield _of_rows("index_reduce amax", partial(_index_reduce, "amax"))
    yield _of_rows("index_put accumulate", _index_put)
    yield _of_rows("index_select", _index_select)
    yield _of_rows("gather of rows", _gather)
    uneven: dict[str, Named] = {"power law": _power_law, "one destination": _one_destination}
    by_rows: dict[str, Callable[..., Problem]] = {
        "index_add": _index_add,
        "scatter_reduce sum": partial(_scatter_reduce, "sum"),
        "gather of rows": _gather,
    }
    for text, named in uneven.items():
        for name, build in by_rows.items():
            row = _of_rows(name, partial(build, named=named))
            yield replace(row, name=f"{row.name}, {text}", host="")
    whole, tiny = partial(_embedding, 50_000, 256, 200_000), partial(_embedding, 8, 4, 16)
    yield Row("embedding 50,000 x 256, 200,000 ids", whole, tiny, "embedding")
    for mode in ("sum", "mean", "max"):
        whole, tiny = partial(_bags, mode, 50_000, 128, 200_000), partial(_bags, mode, 8, 4, 16)
        # PyTorch's deterministic flag refuses the gradient of maxima.
        host = "embedding_bag" if mode == "sum" else ""
        yield Row(f"embedding_bag {mode} 50,000 x 128, 200,000 ids", whole, tiny, host)
    for mode in ("sum", "mean", "max"):
        whole = partial(_bags, mode, 50_000, 128, 200_000, shortest=20, longest=20)
        tiny = partial(_bags, mode, 8, 4, 16, shortest=4, longest=4)
        yield Row(f"embedding_bag {mode} 50,000 x 128, 10,000 bags of 20 ids", whole, tiny)
    whole, tiny = partial(_sparse, 100_000, 16, 64), partial(_sparse, 4, 2, 3)
    yield Row("sparse.mm 100,000 x 100,000 of 1,600,000 values, 64 columns", whole, tiny, compiled=False)
    for reduce in ("sum", "max"):
        yield _of_rows(f"segment_reduce {reduce}", partial(_segment_reduce, reduce))
    for name in ("roi_align", "roi_pool"):
        whole, tiny = partial(_pooled, name, _MAP, 1024), partial(_pooled, name, (1, 1, 8, 8), 2)
        text = f"torchvision {name} 7x7, N2 C256 200x304, 1024 boxes"
        yield Row(text, whole, tiny, name, needs="torchvision")
    for name in ("ps_roi_align", "ps_roi_pool"):
        whole, tiny = partial(_pooled, name, _BIN_MAPS, 512), partial(_pooled, name, (1, 49, 8, 8), 2)
        text = f"torchvision {name} 7x7, N2 C490 50x76, 512 boxes"
        yield Row(text, whole, tiny, name, needs="torchvision", other_gradient=name == "ps_roi_pool")
        # On the map of a finer stage.
        whole = partial(_pooled, name, (2, 490, 100, 152), 1000)
        text = f"torchvision {name} 7x7, N2 C490 100x152, 1000 boxes"
        yield Row(text, whole, tiny, needs="torchvision", other_gradient=name == "ps_roi_pool")
    whole, tiny = partial(_suppressed, 6000), partial(_suppressed, 20)
    yield Row("torchvision nms of 6,000 boxes", whole, tiny, needs="torchvision", compiled=False)
    for shape, masked in (((2, 64, 100, 152), False), ((2, 256, 50, 76), True)):
        whole, tiny = partial(_deformed, shape, masked), partial(_deformed, (1, 2, 4, 4), masked)
        text = f"torchvision deform_conv2d 3x3{', masks' * masked}, {'x'.join(map(str, shape))}"
        yield Row(text, whole, tiny, "deform_conv2d" if masked else "", needs="torchvision")


ROWS = tuple(_rows())
