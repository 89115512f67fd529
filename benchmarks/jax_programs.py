# SPDX-License-Identifier: Apache-2.0
"""Times the operators inside JAX's programs, beside what XLA itself makes of the same, and prints tables.

python benchmarks/jax_programs.py                     everything, on the GPU if JAX has one
python benchmarks/jax_programs.py --backend cpu       on the CPU, smaller
python benchmarks/jax_programs.py --output FILE       also as JSON

What XLA's scatter costs when it is to be deterministic is measured in a second process, whose XLA_FLAGS have
--xla_gpu_deterministic_ops.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# An installed package comes before this source tree's, whose libraries may not be built.
if importlib.util.find_spec("pybaracuda") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
NUM_REPEATS = 7
# Of calls in one measurement of a kernel, and of a program of the host's.
KERNEL_SECONDS = 0.15
HOST_CALLS = 2000
# Operators in one executable.
LOOP_LENGTH = 1000


class Row(NamedTuple):
    """One problem: ours and XLA's way, functions of the same arrays, both jitted whole."""

    name: str
    arrays: Callable[[Any], Sequence[Any]]
    ours: Callable[..., Any]
    xla: Callable[..., Any]


def seconds_of(call: Callable[[], Any], number: int) -> list[float]:
    """Seconds of one call, measured several times over many that are enqueued behind each other."""
    import jax

    jax.block_until_ready(call())
    found = []
    for _ in range(NUM_REPEATS):
        start = time.perf_counter()
        for _ in range(number):
            last = call()
        jax.block_until_ready(last)
        found.append((time.perf_counter() - start) / number)
    return found


def kernel_seconds(call: Callable[[], Any]) -> float:
    """Seconds of one call of a program that keeps the device busy."""
    import jax

    jax.block_until_ready(call())
    start = time.perf_counter()
    jax.block_until_ready(call())
    number = max(3, int(KERNEL_SECONDS / max(time.perf_counter() - start, 1e-6)))
    return statistics.median(seconds_of(call, number))


def host_seconds(call: Callable[[], Any]) -> float:
    """Seconds of one call of a program that does next to nothing."""
    return min(seconds_of(call, HOST_CALLS))


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


def rows_of(is_large: bool) -> Iterator[Row]:
    """The rows; on the CPU a sixteenth of the GPU's."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybaracuda.jax as bj

    part = 1 if is_large else 16
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

    size = f"f32 {rows:,} x {columns}, {segments:,} segments"
    for name in ("segment_sum", "segment_max"):
        yield Row(f"{name} fw {size}", segment_arrays, ours(name), theirs(name))
        yield Row(f"{name} bw {size}", with_cotangent, gradient(ours(name), 0), gradient(theirs(name), 0))

    n, c, edge = (4, 64, 256) if is_large else (1, 32, 128)

    def image_arrays(rng: Any) -> Sequence[Any]:
        y, x = np.mgrid[-1 : 1 : edge * 1j, -1 : 1 : edge * 1j].astype(np.float32)
        grid = np.stack([x + 0.1 * np.sin(3 * y), y + 0.1 * np.cos(3 * x)], -1)[None].repeat(n, 0)
        return [rng.standard_normal((n, c, edge, edge), dtype=np.float32), grid.astype(np.float32)]

    def image_cotangent(rng: Any) -> Sequence[Any]:
        return [rng.standard_normal((n, c, edge, edge), dtype=np.float32), *image_arrays(rng)]

    for label, other in (("gathers in JAX", samples_in_jax), ("map_coordinates", mapped_coordinates)):
        size = f"f32 {n}x{c}x{edge}x{edge} smooth, beside {label}"
        yield Row(f"grid_sample fw {size}", image_arrays, bj.grid_sample, other)
        yield Row(f"grid_sample bw {size}", image_cotangent, gradient(bj.grid_sample, 0, 1), gradient(other, 0, 1))

    n, c, edge = (8, 64, 512) if is_large else (2, 16, 256)
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


def bits_of(call: Callable[[], Any]) -> bytes:
    import jax
    import numpy as np

    return b"".join(np.asarray(each).tobytes() for each in jax.tree.leaves(call()))


def measured_rows(is_large: bool, only_xla: bool) -> list[dict[str, Any]]:
    """Times of every row, and whether five repeats had the same bits."""
    import jax
    import numpy as np

    found = []
    for row in rows_of(is_large):
        arrays = [jax.device_put(each) for each in row.arrays(np.random.default_rng(0))]
        result: dict[str, Any] = {"name": row.name}
        for who, function in (("ours", row.ours), ("xla", row.xla)):
            if who == "ours" and only_xla:
                continue
            try:
                jitted = jax.jit(function)

                def call(jitted: Any = jitted, arrays: Any = arrays) -> Any:
                    return jitted(*arrays)

                result[who] = kernel_seconds(call) * 1e6
                result[f"{who}_same_bits"] = len({bits_of(call) for _ in range(5)}) == 1
            except Exception as error:  # out of memory, or an operator that XLA does not do so
                result[who] = None
                result[f"{who}_error"] = f"{type(error).__name__}: {str(error)[:200]}"
        found.append(result)
        print(f"  {row.name}: {result}", file=sys.stderr)
    return found


def in_executables(rng: Any) -> dict[str, float]:
    """Microseconds of one operator among a thousand in one executable, on 4 x 4 images."""
    import jax
    import jax.numpy as jnp

    import pybaracuda.jax as bj

    x = jnp.asarray(rng.standard_normal((1, 1, 4, 4)).astype("float32"))
    grid = jnp.asarray(rng.uniform(-1, 1, (1, 4, 4, 2)).astype("float32"))
    rows, ids = jnp.asarray(rng.standard_normal((4, 4)).astype("float32")), jnp.arange(4)
    bodies: dict[str, tuple[Any, Callable[..., Any]]] = {
        "x * c": (x, lambda y: y * 0.999),
        "grid_sample": (x, lambda y: bj.grid_sample(y, grid)),
        "pad": (x, lambda y: bj.pad(y, (0, 0, 1, 0), (0, 0, -1, 0), "replicate")),
        "segment_sum": (rows, lambda y: bj.segment_sum(y, ids, 4)),
        "jax.ops.segment_sum": (rows, lambda y: jax.ops.segment_sum(y, ids, 4)),
    }
    found = {}
    for name, (start, body) in bodies.items():

        def loop(y: Any, body: Callable[..., Any] = body) -> Any:
            return jax.lax.fori_loop(0, LOOP_LENGTH, lambda _, z: body(z), y)

        program = jax.jit(loop)

        def run(program: Any = program, start: Any = start) -> Any:
            return program(start)

        seconds = min(seconds_of(run, 5))
        found[name] = seconds / LOOP_LENGTH * 1e6
    return found


def from_python(rng: Any) -> dict[str, float]:
    """Microseconds of one call on tiny arrays from Python, enqueued behind each other."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybaracuda
    import pybaracuda.jax as bj

    host_x, host_grid = rng.standard_normal((1, 1, 4, 4)), rng.uniform(-1, 1, (1, 4, 4, 2))
    host = [np.asarray(each, np.float32) for each in (host_x, host_grid)]
    x, grid = map(jax.device_put, host)
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    low = (0, 0, 1, 1)
    add = jax.jit(lambda y: y + 1)
    sample, pad = jax.jit(bj.grid_sample), jax.jit(lambda y: bj.pad(y, low, low, "reflect"))
    their_pad = jax.jit(lambda y: jnp.pad(y, pads, "reflect"))
    plan = pybaracuda.GridSamplePlan.select(pybaracuda.GridSampleDescriptor(1, 1, 4, 4, 4, 4))
    out = np.empty((1, 1, 4, 4), np.float32)
    bound = plan.bind(input=host[0], grid=host[1], output=out)
    calls: dict[str, Callable[[], Any]] = {
        "jitted x + 1": lambda: add(x),
        "jitted grid_sample": lambda: sample(x, grid),
        "jitted pad": lambda: pad(x),
        "jitted jnp.pad": lambda: their_pad(x),
        "pybaracuda.jax.grid_sample, not jitted": lambda: bj.grid_sample(x, grid),
        "pybaracuda.grid_sample on JAX arrays": lambda: pybaracuda.grid_sample(x, grid),
        "pybaracuda.grid_sample on NumPy arrays": lambda: pybaracuda.grid_sample(host[0], host[1]),
        "the bound C call, from Python": bound,
    }
    return {name: host_seconds(call) * 1e6 for name, call in calls.items()}


def launches(rng: Any) -> dict[str, Any]:
    """Kernels of this library in one call, of a program and of the array function, from JAX's own profiler."""
    import jax

    import pybaracuda
    import pybaracuda.jax as bj

    x = jax.device_put(rng.standard_normal((4, 16, 128, 128)).astype("float32"))
    grid = jax.device_put(rng.uniform(-1, 1, (4, 128, 128, 2)).astype("float32"))
    rows = jax.device_put(rng.standard_normal((100_000, 32)).astype("float32"))
    ids = jax.device_put(rng.integers(0, 5000, 100_000).astype("int32"))
    sample_gradient = jax.jit(lambda g, x, grid: jax.vjp(bj.grid_sample, x, grid)[1](g))
    total = jax.jit(lambda rows, ids: bj.segment_sum(rows, ids, 5000))
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "grid_sample_backward": (
            lambda: sample_gradient(x, x, grid),
            lambda: pybaracuda.grid_sample_backward(x, x, grid),
        ),
        "segment_sum": (lambda: total(rows, ids), lambda: pybaracuda.segment_sum(rows, ids, 5000)),
    }
    found: dict[str, Any] = {}
    for name, (program, function) in pairs.items():
        counts = [_num_kernels(call) for call in (program, function)]
        found[name] = {"in a program": counts[0], "by the array function": counts[1]}
    return found


def _num_kernels(call: Callable[[], Any], repeats: int = 10) -> float | None:
    """How many kernels of this library run in one call; None where the profiler shows none."""
    import jax

    jax.block_until_ready(call())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(repeats):
                jax.block_until_ready(call())
        events: list[dict[str, Any]] = []
        for path in Path(folder).rglob("*.trace.json.gz"):
            with gzip.open(path) as file:
                events += json.load(file)["traceEvents"]
    names = {each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"}
    on_gpu = [each for each in events if each.get("ph") == "X" and "GPU" in names.get(each.get("pid"), "")]
    ours = [each for each in on_gpu if "baracuda" in json.dumps([each["name"], each.get("args", {})])]
    return len(ours) / repeats if ours else None


def printed(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first row its head."""
    print(f"\n{title}\n")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def _microseconds(value: Any) -> str:
    return "failed" if value is None else f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _deterministic_rows(backend: str) -> list[dict[str, Any]]:
    """XLA's times with its deterministic scatter, from a process of its own."""
    flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), DETERMINISTIC]))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.json"
        command = [sys.executable, __file__, "--backend", backend, "--only-xla", "--output", str(output)]
        subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, check=True, stdout=subprocess.DEVNULL)
        found: list[dict[str, Any]] = json.loads(output.read_text())["rows"]
    return found


def main() -> int:
    """Measure, print, and write what `--output` names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cpu", "gpu"), help="default: the GPU if JAX has one")
    parser.add_argument("--output", type=Path, help="a file for everything, as JSON")
    parser.add_argument("--host", action="store_true", help="only what a call costs the host")
    parser.add_argument("--only-xla", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # The second process needs memory, too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.backend == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np

    import pybaracuda

    backend = jax.default_backend()
    is_large = backend == "gpu"
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {
        "device": str(jax.devices()[0].device_kind),
        "versions": {"jax": jax.__version__, "pybaracuda": pybaracuda.__version__},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }
    print(f"{found['device']}, jax {jax.__version__}")
    if not options.only_xla:
        found["from_python"] = from_python(rng)
        printed("Microseconds of a call on tiny arrays", [
            ("call", "us"), *((name, _microseconds(each)) for name, each in found["from_python"].items()),
        ])  # fmt: skip
        found["in_executables"] = in_executables(rng)
        printed(f"Microseconds of an operator among {LOOP_LENGTH} in one executable, 4 x 4", [
            ("operator", "us"), *((name, _microseconds(each)) for name, each in found["in_executables"].items()),
        ])  # fmt: skip
        if is_large:
            found["launches"] = launches(rng)
            printed("Kernels of this library in one call", [
                ("operator", "in a program", "by the array function"),
                *((name, *map(str, each.values())) for name, each in found["launches"].items()),
            ])  # fmt: skip
    if not options.host:
        found["rows"] = measured_rows(is_large, options.only_xla)
        if is_large and not options.only_xla:
            found["deterministic"] = _deterministic_rows("gpu")
    if not options.host and not options.only_xla:
        deterministic = {each["name"]: each.get("xla") for each in found.get("deterministic", [])}
        head = ("row", "ours", "XLA", "ratio", "XLA deterministic", "ratio", "our bits", "XLA's bits")
        table = [head]
        for each in found["rows"]:
            slow = deterministic.get(each["name"])
            ratios = [
                f"{other / each['ours']:.2f} x" if other and each["ours"] else "" for other in (each["xla"], slow)
            ]
            bits = ["same" if each.get(f"{who}_same_bits") else "differ" for who in ("ours", "xla")]
            times = [_microseconds(each["ours"]), _microseconds(each["xla"])]
            table.append((each["name"], *times, ratios[0], _microseconds(slow) if slow else "", ratios[1], *bits))
        printed("Microseconds, each a program of its own", table)
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
