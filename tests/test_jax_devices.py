# SPDX-License-Identifier: Apache-2.0
"""Programs that several devices share: no communication along the axes that are promised, the bits of one device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from jax_cases import CASES

import pybaracuda

PROGRAM = Path(__file__).parent / "jax_devices.py"
FORCED, GPUS = "forced-host-devices", "gpu"
HAS_EXPLICIT_MESHES = hasattr(jax.sharding, "AxisType") and hasattr(jax, "set_mesh")
LEAVES_AXES = hasattr(jax, "shard_map") and bool(getattr(jax.config, "jax_use_shardy_partitioner", False))
# What adds along the axis that is split, or reads other parts of it, and which collectives that takes.
GATHERED = {
    *("gradient, channels split", "rows of segments", "shard_map over a alone"),
    *("explicit roi_align boxes", "explicit gradient, channels split"),
}
# The gradients of what every device has whole.
SUMMED = {"shard_map, replicated grid", *(f"replicated {name}" for name in CASES)}


@pytest.fixture(scope="module", params=[FORCED, "cuda"])
def outcomes(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the program finds, on four forced host devices or on GPUs."""
    if request.param == "cuda":
        if not pybaracuda.backend_available("cuda"):
            pytest.skip("no CUDA")
        if jax.default_backend() != "gpu" or len(jax.devices()) < 2:
            pytest.skip("fewer than two GPUs")
    source = str(Path(pybaracuda.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *([GPUS] if request.param == "cuda" else [])],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] >= (2 if request.param == "cuda" else 4)
    for each in found["cases"].values():
        each["is_split"] = min(each["split"]) == found["devices"]
    cases: dict[str, Any] = found["cases"]
    return cases


def test_every_case_was_run(outcomes: dict[str, Any]) -> None:
    wanted = {f"vmap {name}" for name in CASES} | GATHERED | SUMMED
    wanted |= {"jit grid_sample images", "jit grid_sample channels", "jit roi_align boxes", "gradient of shard_map"}
    wanted |= {"pmap of the gradient", "jit index_copy axes before", "jit index_copy axes behind"}
    if not LEAVES_AXES:
        wanted -= {"shard_map over a alone"}
    if HAS_EXPLICIT_MESHES:
        wanted |= {"explicit grid_sample images", "explicit index_copy axes behind"} | {
            f"explicit vmap {name}" for name in CASES
        }
    else:
        wanted -= {each for each in wanted if each.startswith("explicit")}
    assert wanted <= set(outcomes)


def test_nothing_is_communicated_along_the_axes_that_are_promised(outcomes: dict[str, Any]) -> None:
    talkative = {name: each["collectives"] for name, each in outcomes.items() if each["collectives"]}
    assert set(talkative) <= GATHERED | SUMMED
    for name, each in outcomes.items():
        if name not in GATHERED | SUMMED:
            assert each["is_split"], name


def test_bits_are_those_of_one_device(outcomes: dict[str, Any]) -> None:
    assert {name for name, each in outcomes.items() if not each["same"]} <= SUMMED
    assert all(each["close"] for each in outcomes.values())


def test_what_is_not_promised_is_gathered_or_summed_once(outcomes: dict[str, Any]) -> None:
    for name in GATHERED & set(outcomes):
        assert set(outcomes[name]["collectives"]) == {"all-gather"}, name
    for name in SUMMED:
        assert outcomes[name]["collectives"] == ["all-reduce"], name
