# SPDX-License-Identifier: Apache-2.0
"""The problems of the benchmark of JAX programs: ours, and XLA's way to the same; nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["SIZES", "Row", "gradient", "rows_of"]

# What a size divides the extents by.
SIZES = {"large": 1, "middle": 16, "small": 2000}


class Row(NamedTuple):
    """One problem: ours and XLA's way, functions of the same arrays, both jitted whole."""

    name: str
    arrays: Callable[[Any], Sequence[Any]]
    ours: Callable[..., Any]
    xla: Callable[..., Any]


def gradient(function: Callable[..., Any], *which: int) -> Callable[..., Any]:
    """The gradient by some arguments, of the cotangent that comes first; the others are constants."""
    import jax

    def run(grad: Any, *x: Any) -> Any:
        def of(*moved: Any) -> Any:
            every = list(x)
            for position, value in zip(which, moved, strict=True):
                every[position] = value
            return function(*every)

        return jax.vjp(of, *(x[position] for position in which))[1](grad)

    return run


def samples_in_jax(x: Any, grid: Any) -> Any:
    """grid_sample as one writes it in JAX: gathers, whose gradient is a scatter."""
    import jax
    import jax.numpy as jnp

    h, w = x.shape[2:]
    place = ((grid + 1) * jnp.array([w, h], jnp.float32) - 1) / 2
    low = jnp.floor(place)
    total = 0.0
    for dy in (0, 1):
        for dx in (0, 1):
            at = low + jnp.array([dx, dy], jnp.float32)
            weight = jnp.prod(1 - jnp.abs(place - at), -1)
            inside = (at[..., 0] >= 0) & (at[..., 0] < w) & (at[..., 1] >= 0) & (at[..., 1] < h)
            column, row = (jnp.clip(at[..., i], 0, n - 1).astype(jnp.int32) for i, n in ((0, w), (1, h)))
            taps = jax.vmap(lambda image, r, c: image[:, r, c])(x, row, column)
            total = total + taps * jnp.where(inside, weight, 0)[:, None]
    return total


def mapped_coordinates(x: Any, grid: Any) -> Any:
    """grid_sample through jax.scipy.ndimage.map_coordinates, which takes one plane at a time."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.ndimage import map_coordinates

    h, w = x.shape[2:]
    place = ((grid + 1) * jnp.array([w, h], jnp.float32) - 1) / 2

    def plane(image: Any, at: Any) -> Any:
        return map_coordinates(image, [at[..., 1], at[..., 0]], order=1, mode="constant")

    return jax.vmap(jax.vmap(plane, (0, None)))(x, place)


def rows_of(size: str) -> Iterator[Row]:
    """The rows, for a GPU, for a CPU, or tiny for a test."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybaracuda.jax as bj

    part = SIZES[size]
    rows, segments, columns = 1_000_000 // part, 100_000 // part, 64

    def segment_arrays(rng: Any) -> Sequence[Any]:
        return [
            rng.standard_normal((rows, columns), dtype=np.float32),
            rng.integers(0, segments, rows).astype(np.int32),
        ]

    def with_cotangent(rng: Any) -> Sequence[Any]:
        return [rng.standard_normal((segments, columns), dtype=np.float32), *segment_arrays(rng)]

    def ours(name: str) -> Callable[..., Any]:
        return lambda x, ids: getattr(bj, name)(x, ids, segments)

    def theirs(name: str) -> Callable[..., Any]:
        return lambda x, ids: getattr(jax.ops, name)(x, ids, segments)

    shape = f"f32 {rows:,} x {columns}, {segments:,} segments"
    for name in ("segment_sum", "segment_max"):
        yield Row(f"{name} fw {shape}", segment_arrays, ours(name), theirs(name))
        yield Row(f"{name} bw {shape}", with_cotangent, gradient(ours(name), 0), gradient(theirs(name), 0))

    n, c, edge = {"large": (4, 64, 256), "middle": (1, 32, 128), "small": (1, 2, 8)}[size]

    def image_arrays(rng: Any) -> Sequence[Any]:
        y, x = np.mgrid[-1 : 1 : edge * 1j, -1 : 1 : edge * 1j].astype(np.float32)
        grid = np.stack([x + 0.1 * np.sin(3 * y), y + 0.1 * np.cos(3 * x)], -1)[None].repeat(n, 0)
        return [rng.standard_normal((n, c, edge, edge), dtype=np.float32), grid.astype(np.float32)]

    def image_cotangent(rng: Any) -> Sequence[Any]:
        return [rng.standard_normal((n, c, edge, edge), dtype=np.float32), *image_arrays(rng)]

    for label, other in (("gathers in JAX", samples_in_jax), ("map_coordinates", mapped_coordinates)):
        shape = f"f32 {n}x{c}x{edge}x{edge} smooth, beside {label}"
        yield Row(f"grid_sample fw {shape}", image_arrays, bj.grid_sample, other)
        yield Row(f"grid_sample bw {shape}", image_cotangent, gradient(bj.grid_sample, 0, 1), gradient(other, 0, 1))

    n, c, edge = {"large": (8, 64, 512), "middle": (2, 16, 256), "small": (1, 2, 8)}[size]
    pads = ((0, 0), (0, 0), (3, 3), (3, 3))
    low = tuple(each[0] for each in pads)

    def padded_arrays(rng: Any) -> Sequence[Any]:
        return [
            rng.standard_normal((n, c, edge + 6, edge + 6), dtype=np.float32),
            rng.standard_normal((n, c, edge, edge), dtype=np.float32),
        ]

    for mode, name in (("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        yield Row(
            f"pad_{mode} bw f32 {n}x{c}x{edge}x{edge} pad 3",
            padded_arrays,
            gradient(lambda x, mode=mode: bj.pad(x, low, low, mode), 0),
            gradient(lambda x, name=name: jnp.pad(x, pads, name), 0),
        )
