# SPDX-License-Identifier: Apache-2.0
"""Fixtures and pytest's own hooks; helpers that tests import live in their own modules, nothing imports this one."""

from __future__ import annotations

import importlib
import os
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import share
import skip_policy
from hypothesis import HealthCheck, settings

# At the end: an installed pybaracuda comes before the source tree's.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from place import CUDA_FRAMEWORKS, HOST_FRAMEWORKS, Place, available, place_for

from verify.dtypes import DTYPES

# What records assert is said as in a test.
pytest.register_assert_rewrite("operators")

# Every route is tested on the CPU, also where PyTorch is faster; tests of that choice take this away again.
os.environ.setdefault("PYBARACUDA_TORCH_CPU", "always")

SEED_VARIABLE = "BARACUDA_TEST_SEED"

# Bounded, since every example calls a native library several times; a fixture's state never changes between examples.
settings.register_profile(
    "baracuda",
    deadline=None,
    max_examples=int(os.environ.get("BARACUDA_TEST_EXAMPLES", "20")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("baracuda")


def pytest_configure(config: pytest.Config) -> None:
    # In the environment, so that parallel workers and child processes draw from the same seed.
    os.environ.setdefault(SEED_VARIABLE, str(int.from_bytes(os.urandom(4), "little")))
    # JAX would take three quarters of a GPU's memory, in every worker.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config.pluginmanager.register(skip_policy.SkipPolicy(), "baracuda-skip-policy")
    config.pluginmanager.register(share.Share(os.environ[SEED_VARIABLE]), "baracuda-share")


def pytest_report_header() -> str:
    return f"random data: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> list[int]:
    """This session's seed with this test's name, so that one test alone draws what it drew in the whole suite."""
    session = int(os.environ[SEED_VARIABLE])
    print(f"{SEED_VARIABLE}={session}")
    return [session, zlib.crc32(request.node.name.encode())]


@pytest.fixture
def rng(seed: list[int]) -> np.random.Generator:
    return np.random.default_rng(seed)


def _skip_without_cuda() -> None:
    import pybaracuda

    if not pybaracuda.backend_available("cuda"):
        pytest.skip("no CUDA")


@pytest.fixture(params=skip_policy.backends())
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "cuda":
        _skip_without_cuda()
    return name


@pytest.fixture(params=["cuda"])
def on_cuda(request: pytest.FixtureRequest) -> str:
    """For tests of what only CUDA has; its name stands in their names, as a backend's does."""
    _skip_without_cuda()
    return str(request.param)


@pytest.fixture(params=list(DTYPES))
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return DTYPES[str(request.param)]


@pytest.fixture(params=["f32", "f64"])
def wide_dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    """The dtypes that coordinates can have."""
    return DTYPES[str(request.param)]


@pytest.fixture
def place(backend: str, request: pytest.FixtureRequest) -> Place:
    """Where the test's arrays live, for its dtype if it has one."""
    names = [name for name in ("dtype", "wide_dtype") if name in request.fixturenames]
    found = place_for(backend, request.getfixturevalue(names[0]) if names else DTYPES["f32"])
    if found is None:
        pytest.skip("no torch")
    return found


@pytest.fixture(params=[*HOST_FRAMEWORKS, *CUDA_FRAMEWORKS])
def framework(request: pytest.FixtureRequest) -> Any:
    """Each framework whose arrays the functions take: a frameworks.Framework."""
    name = str(request.param)
    if name in CUDA_FRAMEWORKS:
        _skip_without_cuda()
    if name in ("torch", "torch-cuda"):
        request.getfixturevalue("torch")
    return importlib.import_module("frameworks").framework_of(name)


@pytest.fixture
def torch() -> ModuleType:
    if not available("torch"):
        pytest.skip("no torch")
    return importlib.import_module("torch")


@pytest.fixture
def device(backend: str, torch: ModuleType) -> str:
    """A kind of device that PyTorch has, too. Tests of JAX, and of several GPUs, have devices of their own."""
    if backend == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA")
    return backend


@pytest.fixture
def as_installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that sees the package with its entry points, as pip would have left them."""
    import pybaracuda

    metadata = tmp_path / "site" / "pybaracuda-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pybaracuda\nVersion: 0.1.0\n", encoding="utf-8")
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    found = re.search(r'\[project\.entry-points\."torch\.backends"\]\n(\w+) = "([\w.:]+)"', project)
    assert found is not None
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\n{found[1]} = {found[2]}\n", encoding="utf-8")
    folders = [str(Path(pybaracuda.__file__).parents[1]), str(metadata.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
