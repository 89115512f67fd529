# SPDX-License-Identifier: Apache-2.0
"""What JAX does with whole programs: scan, remat, export, caches, threads; subnormal numbers; what is refused when."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax_cases import CASES, arrays_of, drawn, fixed, wide_for_indices
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def images(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    x, grid = drawn(CASES["grid_sample"], rng, np.float32)
    return x, grid, rng.standard_normal((2, 3, 4, 5)).astype(np.float32)


def gradient_of_samples(x: Any, grid: Any, weights: Any) -> Any:
    return jax.grad(lambda *y: jnp.sum(bj.grid_sample(*y) * weights), (0, 1))(x, grid)


@pytest.mark.parametrize("name", CASES)
def test_scan_remat_value_and_grad_and_export_have_the_array_functions_bits(
    name: str, rng: np.random.Generator
) -> None:
    """Each function in one program that is exported for both platforms, read back and called: its values and gradients
    alone, recomputed, and in a scan over two problems."""
    case, d = CASES[name], fixed(rng)
    problems = [drawn(case, rng, np.float32) for _ in range(2)]
    outputs = [case.call(pybaracuda, d, *each) for each in problems]
    weights = rng.standard_normal(outputs[0].shape).astype(np.float32)

    def loss(*x: Any) -> Any:
        result = case.call(bj, d, *x)
        return jnp.sum(jnp.where(jnp.isfinite(result), result, 0) * weights), result

    def gradients(function: Any, *x: Any) -> Any:
        (value, output), found = jax.value_and_grad(function, tuple(range(len(x))), has_aux=True)(*x)
        return value, output, found

    def program(stacked: Any) -> Any:
        first = [each[0] for each in stacked]
        alone = gradients(loss, *first)
        again = gradients(jax.checkpoint(loss), *first)
        scanned = jax.lax.scan(lambda carry, x: (carry, gradients(loss, *x)), 0, stacked)[1]
        return alone, again, scanned

    stacked = [np.stack(each) for each in zip(*problems, strict=True)]
    blob = exported(program, stacked, platforms=["cpu", "cuda"]).serialize()
    alone, again, scanned = export.deserialize(blob).call(stacked)
    assert case.backward is not None
    for number, (x, y) in enumerate(zip(problems, outputs, strict=True)):
        wanted = [y, *arrays_of(case.backward(pybaracuda, d, np.where(np.isfinite(y), weights, 0), y, *x))]
        found = [jax.tree.map(lambda each, n=number: each[n], scanned), *((alone, again) if number == 0 else ())]
        for value, output, pulled in found:
            assert np.isfinite(value)
            for one, other in zip([output, *pulled], wanted, strict=True):
                assert_same_bits(np.asarray(one), other)


def test_scan_and_its_gradient(rng: np.random.Generator) -> None:
    x, grid, _ = images(rng)
    steps = rng.standard_normal((4, *grid.shape)).astype(np.float32) * 0.1

    def body(carry: Any, step: Any) -> Any:
        sample = bj.grid_sample(carry, grid + step)
        return bj.pad(sample, (0, 0, 1, 1), (0, 0, 1, 1), "reflect"), sample

    def total(x: Any, steps: Any) -> Any:
        return jnp.sum(jax.lax.scan(body, x, steps)[1] ** 2)

    x = np.ascontiguousarray(x[:, :, :, :7])
    unrolled = x
    wanted = []
    for step in steps:
        sample = pybaracuda.grid_sample(unrolled, (grid + step).astype(np.float32))
        unrolled = pybaracuda.pad(sample, (0, 0, 1, 1), (0, 0, 1, 1), "reflect")
        wanted.append(sample)
    _, found = jax.jit(lambda x, steps: jax.lax.scan(body, x, steps))(x, steps)
    assert_same_bits(np.asarray(found), np.stack(wanted))
    scanned = jax.jit(jax.grad(total, (0, 1)))(x, steps)

    def loop(x: Any, steps: Any) -> Any:
        samples = []
        for step in steps:
            x, sample = body(x, step)
            samples.append(sample)
        return jnp.sum(jnp.stack(samples) ** 2)

    for one, other in zip(scanned, jax.jit(jax.grad(loop, (0, 1)))(x, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_jax_s_switches_for_finding_mistakes(name: str, rng: np.random.Generator) -> None:
    """Without jit, where every operation is a program; where constants may not come from the host; where promotions are
    refused; where tracers are watched."""
    case, d = CASES[name], fixed(rng)
    inputs = drawn(case, rng, np.float32)
    output = case.call(pybaracuda, d, *inputs)
    g = rng.standard_normal(output.shape).astype(np.float32)
    arrays, d_arrays = jax.device_put((g, *inputs)), type(d)(**jax.device_put(vars(d)))

    def gradients(g: Any, *x: Any) -> Any:
        output, pull = jax.vjp(lambda *y: case.call(bj, d_arrays, *y), *x)
        return output, *pull(g)

    assert case.backward is not None
    wanted = [output, *arrays_of(case.backward(pybaracuda, d, g, output, *inputs))]
    for mode in (jax.disable_jit(), jax.transfer_guard("disallow")):
        with mode, wide_for_indices(name):
            found = gradients(*arrays)
        for one, other in zip(found, wanted, strict=True):
            assert_same_bits(np.asarray(one), other)

    def everything(g: Any, *x: Any) -> Any:
        moved = jax.jvp(lambda *y: case.call(bj, d, *y), x, x)
        return gradients(g, *x), jax.vmap(gradients)(*(each[None] for each in (g, *x))), moved

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"), jax.checking_leaks():
        text = str(jax.jit(everything).lower(*arrays).as_text())
    assert "@pybaracuda" in text


@pytest.mark.parametrize("operation", ["sum", "max", "softmax"])
def test_ids_that_a_scan_goes_over(operation: str, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((30, 2)).astype(np.float32)
    ids = rng.integers(-1, 5, (4, 30)).astype(np.int32)
    function = getattr(bj, f"segment_{operation}")

    def total(rows: Any, is_scanned: bool) -> Any:
        def body(carry: Any, each: Any) -> Any:
            found = function(carry, each, 4)
            return carry * 0.5, jnp.where(jnp.isfinite(found), found, 0) ** 2

        if is_scanned:
            return jnp.sum(jax.lax.scan(jax.checkpoint(body), rows, ids)[1])
        found = []
        for each in ids:
            rows, value = body(rows, each)
            found.append(jnp.sum(value))
        return sum(found)

    scanned, unrolled = (jax.jit(jax.grad(total), static_argnums=1)(rows, each) for each in (True, False))
    np.testing.assert_allclose(scanned, unrolled, rtol=1e-5, atol=1e-5)
    assert np.abs(scanned).max() > 0
    # Tangents of integers, as JAX spells them.
    nothing = np.zeros(30, jax.dtypes.float0)
    _, moved = jax.jvp(lambda x, i: function(x, i, 4), (rows, ids[0]), (rows, nothing))
    _, alone = jax.jvp(lambda x: function(x, ids[0], 4), (rows,), (rows,))
    assert_same_bits(np.asarray(moved), np.asarray(alone))


def test_linear_functions_have_hessians_of_zero(rng: np.random.Generator) -> None:
    d = fixed(rng)
    x = rng.standard_normal((5, 2)).astype(np.float32)
    assert not np.asarray(jax.jit(jax.hessian(lambda y: jnp.sum(bj.pad(y, 2, 2, "reflect"))))(x)).any()
    rows = rng.standard_normal((40, 1)).astype(np.float32)
    modes = (jax.jacfwd, jax.jacrev)
    jacobians = jax.jit(lambda x: [each(lambda y: bj.segment_sum(y, d.ids, 6)[:, 0])(x)[:, :, 0] for each in modes])
    for jacobian in jacobians(rows):
        np.testing.assert_array_equal(jacobian, (d.ids[None] == np.arange(6)[:, None]).astype(np.float32))


def tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of which many are subnormal."""
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-149, -120, shape))).astype(np.float32)


@pytest.mark.parametrize("is_large", [False, True], ids=["alone", "in a large program"])
def test_subnormal_numbers_survive_xla_s_threads(is_large: bool, rng: np.random.Generator) -> None:
    shape = (2, 3, 70, 80) if is_large else (2, 3, 6, 7)
    x, grid = tiny(rng, shape), rng.uniform(-1, 1, (2, 20, 20, 2)).astype(np.float32)
    grad = tiny(rng, (2, 3, 20, 20))

    def program(x: Any, grid: Any, grad: Any, other: Any) -> Any:
        output, pull = jax.vjp(bj.grid_sample, x, grid)
        return output, *pull(grad), jnp.sin(other @ other) if is_large else other

    results = jax.jit(program)(x, grid, grad, np.ones((300, 300), np.float32))
    wanted = [pybaracuda.grid_sample(x, grid), *pybaracuda.grid_sample_backward(grad, x, grid)]
    smallest_normal = np.finfo(np.float32).tiny
    for result, expected in zip(results, wanted, strict=False):
        assert_same_bits(np.asarray(result), expected)
    assert ((np.abs(wanted[0]) > 0) & (np.abs(wanted[0]) < smallest_normal)).sum() > 50
    # What the page says of XLA's own arithmetic.
    assert not (np.abs(np.asarray(jax.jit(lambda y: y * 0.5)(wanted[0]))) < smallest_normal / 2)[wanted[0] != 0].all()


def test_calls_from_many_threads_have_the_same_bits(rng: np.random.Generator) -> None:
    x, grid, weights = images(rng)
    program = jax.jit(gradient_of_samples)
    wanted = [np.asarray(each) for each in program(x, grid, weights)]
    wrong: list[Any] = []

    def work() -> None:
        with jax.default_device(jax.devices("cpu")[0]):
            for _ in range(50):
                for one, other in zip(program(x, grid, weights), wanted, strict=True):
                    if np.asarray(one).tobytes() != other.tobytes():
                        wrong.append(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def exported(function: Any, *arrays: Any, platforms: Any = None) -> Any:
    allowed = [export.DisabledSafetyCheck.custom_call(each) for each in bj.TARGETS]
    return export.export(jax.jit(function), platforms=platforms, disabled_checks=allowed)(*arrays)


def test_an_exported_program_is_the_same_text_and_runs(rng: np.random.Generator) -> None:
    arrays = images(rng)
    # Equal texts: what a program holds of a call follows from the problem, no address is among it.
    first, second = (exported(gradient_of_samples, *arrays, platforms=["cpu", "cuda"]) for _ in range(2))
    assert first.mlir_module() == second.mlir_module()
    assert first.mlir_module().count(f"@{bj.TARGET}") == 1
    x, grid, weights = arrays
    for result, expected in zip(first.call(*arrays), pybaracuda.grid_sample_backward(weights, x, grid), strict=True):
        assert_same_bits(np.asarray(result), expected)


def run_in(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(pybaracuda.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# What a process of its own does: sees that nothing of JAX is patched, compiles every function and its gradient in one
# program through the persistent cache, and calls an exported program.
OTHER_PROCESS = """
import hashlib, sys
import jax, jax.numpy, jax.ops, numpy as np
from jax import export

modules = jax, jax.numpy, jax.ops, jax.lax
before = [(each, name, getattr(each, name)) for each in modules for name in dir(each)]
import pybaracuda.jax as bj
assert len(before) > 100 and all(getattr(each, name) is held for each, name, held in before)

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.extend([name] if "cache_hits" in name else []))

sys.path.append(sys.argv[1])
from jax_cases import CASES, drawn, fixed

rng = np.random.default_rng(5)
cases = [(case, fixed(rng), drawn(case, rng, np.float32)) for case in CASES.values()]

def every(*inputs):
    found = []
    for (case, d, _), x in zip(cases, inputs):
        output, pull = jax.vjp(lambda *y: case.call(bj, d, *y), *x)
        found += [output, *pull(output)]
    return found

assert not hits
results = jax.jit(every)(*(x for _, _, x in cases))
num_hits = len(hits)
digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in results)).hexdigest()
print(digest, num_hits)

arrays = np.load("arrays.npz")
program = export.deserialize(bytearray(open("program", "rb").read()))
np.savez("results.npz", *map(np.asarray, program.call(*(arrays[name] for name in arrays.files))))
"""


def test_other_processes_take_programs_from_the_cache_and_from_files(tmp_path: Path, rng: np.random.Generator) -> None:
    x, grid, weights = images(rng)
    program = exported(gradient_of_samples, x, grid, weights, platforms=["cpu", "cuda"])
    (tmp_path / "program").write_bytes(program.serialize())
    np.savez(tmp_path / "arrays.npz", x, grid, weights)
    said = []
    for _ in range(2):
        done = run_in(tmp_path, OTHER_PROCESS, str(ROOT / "tests"))
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout.split())
        results = np.load(tmp_path / "results.npz")
        for name, expected in zip(results.files, pybaracuda.grid_sample_backward(weights, x, grid), strict=True):
            assert_same_bits(results[name], expected)
    # The second had every program from the cache, and the same bits.
    assert int(said[0][1]) == 0
    assert int(said[1][1]) > 0
    assert said[0][0] == said[1][0]


def test_producers_and_consumers_in_other_layouts(rng: np.random.Generator) -> None:
    x, grid, _ = images(rng)

    def program(x: Any, grid: Any) -> Any:
        return jnp.transpose(bj.grid_sample(jnp.transpose(x, (3, 1, 2, 0)), grid), (2, 3, 0, 1))

    turned = np.ascontiguousarray(x.transpose(3, 1, 2, 0))
    wanted = pybaracuda.grid_sample(turned, np.repeat(grid[:1], 7, 0)).transpose(2, 3, 0, 1)
    assert_same_bits(np.asarray(jax.jit(program)(x, np.repeat(grid[:1], 7, 0))), np.ascontiguousarray(wanted))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: bj.grid_sample(x, jnp.zeros((3, 4, 4, 2))), ValueError, "grid has shape .* has 2 images"),
        (lambda x: bj.grid_sample(x, x), ValueError, "wanted .N, H, W, 2."),
        (lambda x: bj.grid_sample(x.astype(int), x), TypeError, "input has dtype int32"),
        (
            lambda x: bj.grid_sample(x[:, :, None], jnp.zeros((2, 1, 4, 4, 3)), mode="bicubic"),
            pybaracuda.UnsupportedError,
            "mode 'bicubic' is one of images",
        ),
        (lambda x: bj.grid_sample(x, x, mode="linear"), ValueError, "mode is 'linear'"),
        (lambda x: bj.affine_grid(x, (2, 3, 4, 5)), ValueError, "theta has shape"),
        (lambda x: bj.affine_grid(x, (2, 3, 4)), ValueError, r"size is \(2, 3, 4\)"),
        (lambda x: bj.roi_align(x, jnp.zeros((3, 4)), 2), ValueError, "boxes has shape"),
        (lambda x: bj.roi_align(x, [jnp.zeros((3, 4))] * 3, 2), ValueError, "boxes holds 3 arrays"),
        (
            lambda x: bj.roi_align(x, jnp.zeros((3, 5)), -2),
            pybaracuda.InvalidProblemError,
            "pooled_h is -2",
        ),
        (lambda x: bj.pad(x, (1, 2), 0), ValueError, "pad_low has 2 entries; the array has 4 axes"),
        (lambda x: bj.pad(x, -9, 0), pybaracuda.InvalidProblemError, "crop below 0"),
        (lambda x: bj.pad(x, 1, 1, "edge"), ValueError, "mode is 'edge'"),
        (lambda x: bj.segment_sum(x, jnp.zeros(3, int), 2), ValueError, "segment_ids has shape"),
        (lambda x: bj.segment_sum(x, jnp.zeros(2, int), -2), ValueError, "num_segments is -2"),
        (lambda x: bj.segment_sum(x, jnp.zeros(2), 2), TypeError, "segment_ids has dtype float32"),
        (lambda x: bj.segment_max(x, jnp.zeros(2, int), 2, ties="last"), ValueError, "ties is 'last'"),
        (lambda x: bj.segment_csr(x, jnp.zeros(2, int), "median"), ValueError, "reduce is 'median'"),
        (lambda x: bj.segment_csr(x, jnp.zeros((2, 2), int)), ValueError, "offsets has shape"),
        (lambda x: bj.roi_pool(x, jnp.zeros((3, 4)), 2), ValueError, "boxes has shape"),
        (lambda x: bj.roi_pool(x.astype(int), jnp.zeros((3, 5)), 2), TypeError, "input has dtype int32"),
        (lambda x: bj.gather_csr(x, jnp.zeros(7, int), 4), ValueError, "input has shape .* wanted .6, 3, 6, 7."),
        (lambda x: bj.gather_csr(x, jnp.zeros(3, int), -1), pybaracuda.InvalidProblemError, "num_rows is -1"),
        (lambda x: bj.segment_gather(x, jnp.zeros(3)), TypeError, "segment_ids has dtype float32"),
        (
            lambda x: bj.segment_mean(x.astype(int), jnp.zeros(2, int), 2),
            pybaracuda.UnsupportedError,
            "int32, which is not wired yet",
        ),
        (lambda x: bj.segment_softmax(x, jnp.zeros((2, 2), int), 2), ValueError, "segment_ids has shape"),
        (lambda x: bj.segment_logsumexp(x, jnp.zeros(2, int), 2, empty_value="a"), TypeError, "empty_value: wanted"),
        (lambda x: bj.segment_min(x, jnp.zeros(2, int), 2, mode="wrong"), ValueError, "Unknown gather mode"),
        (lambda x: bj.segment_prod(x, jnp.zeros(2, int), 2.5), TypeError, "num_segments: wanted an int"),
        (lambda x: bj.segment_csr(x, jnp.zeros(2, int), "sum", return_arg=True), ValueError, "sum has no rows"),
        (lambda x: bj.dequantize_per_channel(x, x, x, 0), TypeError, "input has dtype float32"),
        (lambda x: bj.dequantize_per_channel(x, x, x, 7), ValueError, "axis is 7"),
    ],
)
def test_mistakes_are_said_when_a_program_is_traced(call: Any, error: Any, message: str) -> None:
    x = jnp.ones((2, 3, 6, 7))
    for function, array in ((call, x), (jax.jit(call), x), (jax.vmap(call), x[None])):
        with pytest.raises(error, match=message):
            function(array)


def test_traced_ids_need_a_number_of_segments() -> None:
    with pytest.raises(TypeError, match="num_segments: wanted an int, since the ids are traced"):
        jax.jit(lambda ids: bj.segment_sum(jnp.ones(3), ids))(jnp.zeros(3, int))


class Called:
    """The package, which remembers what was called of it."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(pybaracuda, name)


NOT_OF_ARRAYS = {
    *("backend_available", "backend_problem", "check", "cmake_dir", "include_dir", "last_path", "library_path", "raw"),
}


def test_every_array_function_names_this_module_to_a_tracer(rng: np.random.Generator) -> None:
    names: set[str] = set()
    module, d = Called(names), fixed(rng)
    ones = np.ones((40, 2), np.float32)

    def refused(call: Any, *x: Any) -> None:
        with pytest.raises(TypeError, match=r"a JAX tracer has no data; use pybaracuda\.jax"):
            jax.jit(call)(*x)

    for case in CASES.values():
        inputs = drawn(case, rng, np.float32)
        output = case.call(pybaracuda, d, *inputs)
        refused(lambda *x, case=case: case.call(module, d, *x), *inputs)
        assert case.backward is not None
        refused(lambda g, *x, case=case, y=output: case.backward(module, d, g, y, *x), output, *inputs)
    # One operand alone is traced.
    x, grid = drawn(CASES["grid_sample"], rng, np.float32)
    refused(lambda g: module.grid_sample_backward(g, x, grid), np.ones((2, 3, 4, 5), np.float32))
    refused(lambda g: module.grid_sample_backward(np.ones((2, 3, 4, 5), np.float32), x, g), grid)
    refused(lambda y: module.unsorted_segment_max(y, d.ids, 6), ones)
    refused(lambda i: module.unsorted_segment_max(ones, i, 6), d.ids)
    refused(lambda g: module.unsorted_segment_max_backward(g, ones, d.ids), np.ones((6, 2), np.float32))
    refused(lambda i: module.segment_sum(ones, i, 6), d.ids)
    refused(lambda i: module.segment_csr(ones, i), d.offsets)
    refused(lambda b: module.roi_align(x, b, 2), d.boxes)
    moves = np.ones((2, 8, 2, 3), np.float32)
    refused(lambda g: module.deform_im2col_backward(g, moves, (2, 3, 3, 4), 2), np.ones((2, 12, 6), np.float32))
    refused(lambda b: module.roi_align_boxes_backward(np.ones((3, 3, 2, 2), np.float32), x, b), d.boxes)
    refused(lambda s: module.dequantize_per_channel_backward(np.ones((3, 4, 5), np.float32), s, 1), np.ones(4))
    boxes, scores = np.ones((3, 4), np.float32), np.ones(3, np.float32)
    refused(lambda b: module.nms(b, scores, 0.5), boxes)
    refused(lambda i: module.batched_nms(boxes, scores, i, 0.5), np.zeros(3, np.int32))
    refused(lambda b: module.nms_sorted(b, 0.5), boxes)
    refused(lambda x: module.histc(x, 5), ones)
    given = np.zeros((1, 2), np.int64), np.array([4]), np.array([2])
    sums = np.ones(1, np.float32), np.ones((1, 4, 5), np.float32)
    steps = np.ones((4, 1, 3), np.float32)
    refused(lambda x: module.ctc_loss(x, *given), steps)
    refused(lambda g: module.ctc_loss_backward(g, steps, *given, *sums), sums[0])
    refused(lambda w: module.bincount(np.zeros(4, np.int32), w, 3), np.ones(4, np.float32))
    table, places = np.ones((5, 4), np.float32), (np.array([0, 2]), np.array([0, 0]))
    refused(lambda g: module.embedding_bag_weights_backward(g, table, *places), np.ones((1, 4), np.float32))
    refused(lambda i: module.index_copy(ones, 0, i, ones[:1]), np.zeros(1, np.int32))
    refused(lambda s: module.index_copy(ones, 0, np.zeros(1, np.int64), s), ones[:1])
    every = {each for each in pybaracuda.__all__ if each[0].islower()}
    assert names == every - NOT_OF_ARRAYS


def test_a_symbolic_size_is_refused() -> None:
    shape = export.symbolic_shape("b, 3")
    with pytest.raises(Exception, match=r"wanted|integer|int"):
        exported(lambda x: bj.pad(x, 1, 1), jax.ShapeDtypeStruct(shape, np.float32))


def test_a_call_is_a_program_s_result_beside_a_product_with_a_vector(rng: np.random.Generator) -> None:
    """XLA of some versions ended the process."""
    vector = rng.standard_normal(2).astype(np.float32)
    matrix = rng.standard_normal((2, 40)).astype(np.float32)
    of_program = jax.jit(lambda v, m: bj.cumsum(v @ m, 0))(vector, matrix)
    # Two products, their sum and at most 40 additions, each rounded by at most 2^-24 of the terms so far.
    vector, matrix = vector.astype(np.float64), matrix.astype(np.float64)
    bound = 44 * 2.0**-24 * np.cumsum(np.abs(vector) @ np.abs(matrix))
    assert (np.abs(of_program - np.cumsum(vector @ matrix)) <= bound).all()
