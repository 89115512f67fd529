# SPDX-License-Identifier: Apache-2.0
"""A program that runs the functions of pybaracuda.jax on several devices and prints, as JSON, what came of each case.

python tests/jax_devices.py: on four forced host devices; on a machine with several GPUs, `python tests/jax_devices.py
gpu` on four of these, or two. Of each case: the collectives in the compiled program, whether the bits are those of one
device, and how the results lie.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FORCED_DEVICES = 4
if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path.append(str(ROOT))
    if "gpu" not in sys.argv:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={FORCED_DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from jax_cases import CASES, arrays_of, drawn, fixed, gradient_of_copied_rows  # noqa: E402

import pybaracuda  # noqa: E402
import pybaracuda.jax as bj  # noqa: E402

NUM_DEVICES = 4 if len(jax.devices()) >= 4 else 2
_COLLECTIVE = re.compile(r"\b(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")

# How far sums of the same terms in two orders may be apart, in parts of the largest of them: terms of one array are
# alike in size, and where they cancel the error stays that of the terms. Some 170 roundings; a lost term is far more.
_ORDERS = 1e-5


def are_close(one: Any, other: Any) -> bool:
    """Tell whether two arrays may be the same sums in two orders."""
    most = np.abs(other[np.isfinite(other)]).max(initial=0)
    return bool(np.allclose(one, other, rtol=0, atol=_ORDERS * most))


def shard_map_of() -> Any:
    if hasattr(jax, "shard_map"):
        return jax.shard_map
    from jax.experimental.shard_map import shard_map

    return shard_map


def outcome(
    function: Callable[..., Any], arrays: Sequence[Any], expected: Sequence[Any], jitted: Any = None
) -> dict[str, Any]:
    """Compile, run and compare to the bit."""
    compiled = (jitted or jax.jit(function)).lower(*arrays).compile()
    results = jax.tree.leaves(compiled(*arrays))
    pairs = list(zip(arrays_of(results), expected, strict=True))
    return {
        "collectives": sorted(_COLLECTIVE.findall(compiled.as_text())),
        "same": all(one.dtype == other.dtype and one.tobytes() == other.tobytes() for one, other in pairs),
        "close": all(are_close(one, other) for one, other in pairs),
        "split": [len({str(each.index) for each in result.addressable_shards}) for result in results],
    }


def forward_and_gradient(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(g: Any, *x: Any) -> Any:
        output, pull = jax.vjp(call, *x)
        return (output, *pull(g))

    return run


def mapped_cases(mesh: Any, rng: np.random.Generator, is_explicit: bool = False) -> Iterator[tuple[str, Any]]:
    """Every function mapped over a batch that is split, with its gradient: in jit, in shard_map and through shard_map;
    and the gradient of what every device has whole."""
    for name, case in CASES.items():
        d = fixed(rng)
        problems = [drawn(case, rng, np.float32) for _ in range(2 * NUM_DEVICES)]
        outputs = [case.call(pybaracuda, d, *each) for each in problems]
        grads = [rng.standard_normal(each.shape).astype(np.float32) for each in outputs]
        assert case.backward is not None
        gradients = [
            arrays_of(case.backward(pybaracuda, d, g, y, *x)) for g, y, x in zip(grads, outputs, problems, strict=True)
        ]
        expected = [np.stack(outputs), *(np.stack(each) for each in zip(*gradients, strict=True))]
        split = NamedSharding(mesh, P("d"))
        arrays = [jax.device_put(np.stack(each), split) for each in (grads, *zip(*problems, strict=True))]

        def call(*x: Any, case: Any = case, d: Any = d) -> Any:
            return case.call(bj, d, *x)

        run = jax.vmap(forward_and_gradient(call))
        if is_explicit:
            yield f"vmap {name}", outcome(run, arrays, expected)
            continue

        def mapped(function: Any, *specs: Any) -> Any:
            return shard_map_of()(function, mesh=mesh, in_specs=specs, out_specs=P("d"))

        inside = mapped(run, *(P("d"),) * len(arrays))
        through = forward_and_gradient(mapped(jax.vmap(call), *(P("d"),) * (len(arrays) - 1)))
        yield f"vmap {name}", outcome(lambda *a, f=(run, inside, through): [g(*a) for g in f], arrays, 3 * expected)

        # All problems have the operands of one.
        whole = [jax.device_put(each, NamedSharding(mesh, P())) for each in problems[0]]
        weighed = mapped(
            lambda g, *x, call=call: jax.vmap(lambda w: jax.numpy.vdot(w, jax.numpy.nan_to_num(call(*x))))(g),
            *(P("d"), *(P(),) * len(whole)),
        )

        def slopes(g: Any, *x: Any, weighed: Any = weighed) -> Any:
            return jax.grad(lambda *moved: weighed(g, *moved).sum(), tuple(range(len(x))))(*x)

        weights = np.where(np.isfinite(outputs[0]), sum(grads), 0)
        sums = arrays_of(case.backward(pybaracuda, d, weights, outputs[0], *problems[0]))
        yield f"replicated {name}", outcome(slopes, [arrays[0], *whole], sums)


class Problem:
    """A function on arrays that are split along axes of their own, and what it gives on one device."""

    def __init__(self, call: Any, arrays: Sequence[Any], specs: Sequence[Any], of_output: Any, backward: Any) -> None:
        self.call, self.arrays, self.specs, self.of_output, self.backward = call, arrays, specs, of_output, backward
        self.output = np.asarray(call(pybaracuda, *arrays))

    def gradients(self, grad: Any) -> list[Any]:
        return arrays_of(self.backward(pybaracuda, grad, self.output, *self.arrays))


def own_problems(rng: np.random.Generator) -> dict[str, Problem]:
    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    x, grid = normal(8, 4, 6, 7), rng.uniform(-1.2, 1.2, (8, 5, 3, 2)).astype(np.float32)
    boxes = np.concatenate([rng.integers(0, 8, (12, 1)), rng.uniform(0, 7, (12, 4))], 1).astype(np.float32)
    ids = rng.integers(-1, 7, 50).astype(np.int32)
    offsets = np.array([0, 10, 10, 31, 50], np.int32)
    data = P("d")
    problems = {
        "grid_sample images": Problem(
            lambda m, *a: m.grid_sample(*a), [x, grid], [data, data], data,
            lambda m, g, y, *a: m.grid_sample_backward(g, *a),
        ),
        "affine_grid maps": Problem(
            lambda m, t: m.affine_grid(t, (8, 1, 5, 6)), [normal(8, 2, 3)], [data], data,
            lambda m, g, y, t: m.affine_grid_backward(g, (8, 1, 5, 6)),
        ),
        "roi_align channels": Problem(
            lambda m, a: m.roi_align(a, boxes, 3), [x], [P(None, "d")], P(None, "d"),
            lambda m, g, y, a: m.roi_align_backward(g, boxes, a.shape),
        ),
        "roi_pool channels": Problem(
            lambda m, a: m.roi_pool(a, boxes, 3), [x], [P(None, "d")], P(None, "d"),
            lambda m, g, y, a: m.roi_pool_backward(g, boxes, m.roi_pool(a, boxes, 3, return_argmax=True)[1], a.shape),
        ),
        "pad axes without pads": Problem(
            lambda m, a: m.pad(a, (0, 0, 1, 2), (0, 0, 3, 0), "reflect"), [x], [P(None, "d")], P(None, "d"),
            lambda m, g, y, a: m.pad_backward(g, (0, 0, 1, 2), (0, 0, 3, 0), "reflect"),
        ),
    }  # fmt: skip
    for operation in ("sum", "mean", "max", "logsumexp", "softmax", "prod"):
        by_ids = next(name for name in CASES if name == f"segment_{operation}")

        def backward(m: Any, g: Any, y: Any, a: Any, operation: str = operation) -> Any:
            function = getattr(m, f"segment_{operation}_backward")
            extra = {
                "sum": (ids,), "mean": (ids,), "max": (a, ids), "softmax": (y, ids, 6),
                "logsumexp": (a, y, ids), "prod": (a, y, ids),
            }  # fmt: skip
            return function(g, *extra[operation], **({"ties": "even"} if operation == "max" else {}))

        problems[f"{by_ids} columns"] = Problem(
            lambda m, a, operation=operation: getattr(m, f"segment_{operation}")(a, ids, 6),
            [normal(50, 3, 8)], [P(None, None, "d")], P(None, None, "d"), backward,
        )  # fmt: skip
    problems["segment_csr columns"] = Problem(
        lambda m, a: m.segment_csr(a, offsets, "mean"), [normal(50, 8)], [P(None, "d")], P(None, "d"),
        lambda m, g, y, a: m.segment_csr_backward(g, offsets, "mean", num_rows=50),
    )  # fmt: skip
    for axes, dim, shape, spec in (("before", 2, (8, 4, 6, 7), data), ("behind", 0, (120, 3, 8), P(None, None, "d"))):
        rows = (*shape[:dim], 50, *shape[dim + 1 :])

        def copied_back(m: Any, g: Any, y: Any, a: Any, source: Any, dim: int = dim) -> Any:
            by_input = m.index_copy(g, dim, ids, np.zeros_like(source))
            return by_input, gradient_of_copied_rows(g, dim, ids, 50)

        problems[f"index_copy axes {axes}"] = Problem(
            lambda m, a, source, dim=dim: m.index_copy(a, dim, ids, source),
            [normal(*shape), normal(*rows)], [spec, spec], spec, copied_back,
        )  # fmt: skip
    # What has no gradient that can be split, or whose gradient adds along the axis.
    problems["grid_sample channels"] = Problem(
        lambda m, *a: m.grid_sample(*a), [x, grid], [P(None, "d"), P()], P(None, "d"), None
    )
    problems["roi_align boxes"] = Problem(lambda m, *a: m.roi_align(*a, 3), [x, boxes], [P(), P("d")], P("d"), None)
    return problems


def own_cases(mesh: Any, rng: np.random.Generator, prefix: str = "jit") -> Iterator[tuple[str, Any]]:
    for name, problem in own_problems(rng).items():
        arrays = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(problem.arrays, problem.specs, strict=True)]

        def call(*a: Any, problem: Problem = problem) -> Any:
            return problem.call(bj, *a)

        if problem.backward is None:
            yield f"{prefix} {name}", outcome(call, arrays, [problem.output])
            continue
        grad = rng.standard_normal(problem.output.shape).astype(np.float32)
        placed = jax.device_put(grad, NamedSharding(mesh, problem.of_output))
        expected = [problem.output, *problem.gradients(grad)]
        yield f"{prefix} {name}", outcome(forward_and_gradient(call), [placed, *arrays], expected)


def dequantize_cases(mesh: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    quantized = rng.integers(-128, 128, (8, 4, 12)).astype(np.int8)
    scale, zero = rng.standard_normal(4).astype(np.float32), np.arange(4, dtype=np.int32)
    expected = [pybaracuda.dequantize_per_channel(quantized, scale, zero, 1)]
    for axis in range(3):
        spec, own = P(*(None,) * axis, "d"), P("d") if axis == 1 else P()
        pairs = zip((quantized, scale, zero), (spec, own, own), strict=True)
        arrays = [jax.device_put(array, NamedSharding(mesh, each)) for array, each in pairs]
        run = outcome(lambda *a: bj.dequantize_per_channel(*a, 1), arrays, expected)
        yield f"jit dequantize_per_channel axis {axis}", run


def is_partly_manual() -> bool:
    """Whether shard_map may leave mesh axes to the partitioner, which ends the process where that is not Shardy."""
    return hasattr(jax, "shard_map") and bool(getattr(jax.config, "jax_use_shardy_partitioner", False))


def pmap_cases(mesh: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    x, grid = drawn(CASES["grid_sample"], rng, np.float32)
    arrays = [np.stack([each + np.float32(n) / 8 for n in range(NUM_DEVICES)]) for each in (x, grid)]
    outputs = np.stack([pybaracuda.grid_sample(*each) for each in zip(*arrays, strict=True)])
    grads = rng.standard_normal(outputs.shape).astype(np.float32)
    gradients = [pybaracuda.grid_sample_backward(*each) for each in zip(grads, *arrays, strict=True)]
    expected = [outputs, *(np.stack(each) for each in zip(*gradients, strict=True))]
    run = jax.pmap(forward_and_gradient(bj.grid_sample), devices=jax.devices()[:NUM_DEVICES])
    yield "pmap of the gradient", outcome(run, [grads, *arrays], expected, jitted=run)


def shared_cases(mesh: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """shard_map, what is replicated, and what must be gathered."""
    x, grid = rng.standard_normal((8, 4, 6, 7)).astype(np.float32), rng.uniform(-1, 1, (8, 5, 3, 2)).astype(np.float32)
    output = pybaracuda.grid_sample(x, grid)
    grad = rng.standard_normal(output.shape).astype(np.float32)
    gradients = arrays_of(pybaracuda.grid_sample_backward(grad, x, grid))
    split, whole, channels = (NamedSharding(mesh, spec) for spec in (P("d"), P(), P(None, "d")))
    both = forward_and_gradient(bj.grid_sample)
    mapped = shard_map_of()(both, mesh=mesh, in_specs=(P("d"),) * 3, out_specs=(P("d"),) * 3)
    arrays = [jax.device_put(each, split) for each in (grad, x, grid)]
    yield "shard_map of the gradient", outcome(mapped, arrays, [output, *gradients])
    sample = shard_map_of()(bj.grid_sample, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d"))
    yield "gradient of shard_map", outcome(forward_and_gradient(sample), arrays, [output, *gradients])
    # One grid for all images, which every device has: its gradient is a sum over them.
    one = jax.device_put(grid[:1], whole)
    every = np.repeat(grid[:1], 8, 0)
    sums = pybaracuda.grid_sample_backward(grad, x, every)[1].sum(0, keepdims=True)

    def with_one(image: Any, grid: Any) -> Any:
        return bj.grid_sample(image, jax.numpy.repeat(grid, image.shape[0], 0))

    shared = shard_map_of()(with_one, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))

    def slope(g: Any, x: Any, grid: Any) -> Any:
        return jax.grad(lambda y: (shared(x, y) * g).sum())(grid)

    yield "shard_map, replicated grid", outcome(slope, [*arrays[:2], one], [sums])
    # The gradient of a grid adds over the channels.
    apart = [jax.device_put(grad, channels), jax.device_put(x, channels), jax.device_put(grid, whole)]
    yield "gradient, channels split", outcome(both, apart, [output, *gradients])
    two = Mesh(np.array(jax.devices()[:NUM_DEVICES]).reshape(NUM_DEVICES // 2, 2), ("a", "b"))
    arrays = [jax.device_put(x, NamedSharding(two, P("a", "b"))), jax.device_put(grid, NamedSharding(two, P("a")))]
    yield "images over a, channels over b", outcome(bj.grid_sample, arrays, [output])
    if is_partly_manual():
        # The part that is not the function's own to split is gathered.
        part = jax.shard_map(bj.grid_sample, mesh=two, in_specs=(P("a"), P("a")), out_specs=P("a"), axis_names={"a"})
        yield "shard_map over a alone", outcome(part, arrays, [output])
    rows = rng.standard_normal((48, 8)).astype(np.float32)
    ids = rng.integers(0, 5, 48).astype(np.int32)
    arrays = [jax.device_put(rows, split), jax.device_put(ids, split)]
    yield "rows of segments", outcome(lambda *a: bj.segment_sum(*a, 5), arrays, [pybaracuda.segment_sum(rows, ids, 5)])


def explicit_cases(rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Meshes whose axes are part of types; versions of JAX without them have no such cases."""
    if not (hasattr(jax.sharding, "AxisType") and hasattr(jax, "set_mesh")):
        return
    mesh = jax.make_mesh((NUM_DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        for name, result in own_cases(mesh, rng, "explicit"):
            if "channels" not in name or "roi" in name:
                yield name, result
        for name, result in mapped_cases(mesh, rng, is_explicit=True):
            yield f"explicit {name}", result
        # Split in the function as well, the channels would make an all-reduce of the gradient of the grid.
        x, grid = drawn(CASES["grid_sample"], rng, np.float32)
        x, grid = np.repeat(x, 4, 1), np.ascontiguousarray(grid)
        output = pybaracuda.grid_sample(x, grid)
        grad = rng.standard_normal(output.shape).astype(np.float32)
        expected = [output, *arrays_of(pybaracuda.grid_sample_backward(grad, x, grid))]
        channels, whole = NamedSharding(mesh, P(None, "d")), NamedSharding(mesh, P())
        arrays = [jax.device_put(grad, whole), jax.device_put(x, channels), jax.device_put(grid, whole)]
        run = outcome(forward_and_gradient(bj.grid_sample), arrays, expected)
        yield "explicit gradient, channels split", run


def main() -> int:
    rng = np.random.default_rng(int(os.environ.get("BARACUDA_TEST_SEED", "0")))
    mesh = Mesh(np.array(jax.devices()[:NUM_DEVICES]), ("d",))
    found: dict[str, Any] = {}
    for cases in (mapped_cases, own_cases, dequantize_cases, pmap_cases, shared_cases):
        found.update(cases(mesh, rng))
    found.update(explicit_cases(rng))
    print(json.dumps({"devices": NUM_DEVICES, "cases": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
