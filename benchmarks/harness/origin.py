# SPDX-License-Identifier: Apache-2.0
"""What a run's figures came from: machine, driver, versions, clocks, settings. Nothing is measured here."""

from __future__ import annotations

import datetime
import platform
import shutil
import subprocess
from importlib import metadata
from typing import Any

import pybaracuda

from .place import Place

_PACKAGES = ("numpy", "torch", "torchvision", "torch_scatter", "jax", "jaxlib")
_CUPY_PREFIX = "cupy"
# What nvidia-smi is asked: power and temperature explain a slow run.
_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit", "power.draw", "temperature.gpu")


def versions() -> dict[str, str]:
    """Versions of the packages that take part, as far as they are installed."""
    found = {"pybaracuda": str(pybaracuda.__version__), "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name.startswith(_CUPY_PREFIX):
            found[name] = distribution.version
    return found


def _nvidia_smi(fields: tuple[str, ...]) -> dict[str, str]:
    """What the driver's tool says of the first GPU; empty without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(fields, (each.strip() for each in answer.strip().split(", ")), strict=False))


def clocks(place: Place) -> dict[str, str]:
    """Clocks, power and temperature of a GPU at this moment."""
    return _nvidia_smi(_CLOCKS) if place.backend == "cuda" else {}


def driver(place: Place) -> str:
    """The version of the GPU's driver."""
    return _nvidia_smi(("driver_version",)).get("driver_version", "") if place.backend == "cuda" else ""


def describe(place: Place, repeat: int, missing: dict[str, str], libraries: list[str]) -> dict[str, Any]:
    """Everything that is known before the first row."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "device": place.device,
        "backend": place.backend,
        "driver": driver(place),
        "system": platform.platform(),
        "versions": versions(),
        "absent": missing,
        "libraries": libraries,
        "flush": place.flush,
        "repeat": repeat,
    }
