# SPDX-License-Identifier: Apache-2.0
"""What only a GPU shows of pybaracuda.jax: command buffers, and the CPU library's bits in programs that repeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pybaracuda
import pybaracuda.jax

# By default, never, and always: what XLA makes CUDA graphs of.
COMMAND_BUFFERS = {
    "default": "",
    "off": "--xla_gpu_enable_command_buffer=",
    "on": "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1",
}
LOOP = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import pybaracuda.jax as bj
from pybaracuda.jax import _primitive

if sys.argv[3] == "own":
    # As where the CUDA library is not installed and a program is traced for it.
    _primitive._cuda = lambda: None
arrays = np.load(sys.argv[1])
x, grid, rows, ids = (jnp.asarray(arrays[name]) for name in ("x", "grid", "rows", "ids"))

def step(number, carry):
    x, total = carry
    sample = bj.grid_sample(bj.pad(x, (0, 0, 2, 1), (0, 0, 1, 2), "reflect"), grid)
    # Exact in float32: no rounding of XLA's own.
    x = jnp.maximum(jnp.minimum(sample, 4), -4)
    return x, bj.segment_max(jnp.maximum(rows, total[0, 0]), ids, 50)

program = jax.jit(lambda x, rows: jax.lax.fori_loop(0, 200, step, (x, rows[:50])))
assert (bj.TARGETS[1] + "(" in program.lower(x, rows).as_text()) == (sys.argv[3] == "own")
results = [[np.asarray(each) for each in program(x, rows)] for _ in range(3)]
for one in results[1:]:
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, results[0]))
np.savez(sys.argv[2], *results[0])
print(json.dumps(str(jax.devices()[0].platform)))
"""


@pytest.fixture(params=["cuda"], autouse=True)
def on_cuda(request: pytest.FixtureRequest) -> str:
    if not pybaracuda.backend_available("cuda") or jax.default_backend() != "gpu":
        pytest.skip("no CUDA")
    return str(request.param)


@pytest.mark.parametrize("scratch", ["given", "own"])
@pytest.mark.parametrize("flags", COMMAND_BUFFERS)
def test_a_loop_in_one_program_has_the_cpu_s_bits(
    flags: str, scratch: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    np.savez(
        tmp_path / "arrays.npz",
        x=rng.standard_normal((2, 3, 40, 50)).astype(np.float32),
        grid=rng.uniform(-1.1, 1.1, (2, 40, 50, 2)).astype(np.float32),
        rows=rng.standard_normal((1000, 8)).astype(np.float32),
        ids=rng.integers(-1, 51, 1000).astype(np.int32),
    )
    found = {}
    for platform in ("cpu", "cuda"):
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(pybaracuda.__file__).parents[1]),
            "JAX_PLATFORMS": platform,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        if platform == "cuda":
            environment["XLA_FLAGS"] = COMMAND_BUFFERS[flags]
        kind = scratch if platform == "cuda" else "given"
        done = subprocess.run(
            [sys.executable, "-c", LOOP, str(tmp_path / "arrays.npz"), str(tmp_path / f"{platform}.npz"), kind],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"cpu": "cpu", "cuda": "gpu"}[platform]
        loaded = np.load(tmp_path / f"{platform}.npz")
        found[platform] = [loaded[name] for name in loaded.files]
    for one, other in zip(found["cpu"], found["cuda"], strict=True):
        assert one.tobytes() == other.tobytes()


def test_gradients_of_changing_inputs_have_the_cpu_s_bits(rng: np.random.Generator) -> None:
    program = jax.jit(lambda g, x, grid: jax.vjp(pybaracuda.jax.grid_sample, x, grid)[1](g))
    for _ in range(5):
        x = rng.standard_normal((4, 8, 64, 64)).astype(np.float32)
        grid = rng.uniform(-1.1, 1.1, (4, 64, 64, 2)).astype(np.float32)
        g = rng.standard_normal((4, 8, 64, 64)).astype(np.float32)
        wanted: Any = pybaracuda.grid_sample_backward(g, x, grid)
        for one, other in zip(program(g, x, grid), wanted, strict=True):
            assert np.asarray(one).tobytes() == other.tobytes()
