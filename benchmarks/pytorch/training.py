# SPDX-License-Identifier: Apache-2.0
"""Runs the training program in fresh processes, as it is and on our kernels, and reads what it found."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pybaracuda

from .results import Training

_PROGRAM = Path(__file__).with_name("mask_rcnn.py")


class Variant(NamedTuple):
    """A way to run the program; `title` is for a reader."""

    name: str
    title: str
    ours: bool
    options: tuple[str, ...]

    def command(self) -> list[str]:
        """What follows the interpreter and comes before the program's output options."""
        before = ["-m", "pybaracuda.torch", "--deterministic", "--seed", "0"] if self.ours else []
        return [*before, str(_PROGRAM), *self.options]


VARIANTS = (
    Variant("plain", "PyTorch", False, ()),
    Variant("ours", "`python -m pybaracuda.torch --deterministic --seed 0`", True, ()),
    Variant("ours_no_fill", "the same, `fill_uninitialized_memory = False`", True, ("--no-fill",)),
    Variant("flag", "PyTorch, deterministic algorithms (warn_only)", False, ("--flag", "--steps", "6")),
)


def environment() -> dict[str, str]:
    """The environment of a process that finds this process's pybaracuda first."""
    folders = [str(Path(pybaracuda.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def run(variant: Variant, sizes: list[str], timeout: float, profile: Path | None = None) -> Training:
    """Run the program once; its profile, if one is wanted, does not count in its time."""
    shown = ["python", *variant.command()]
    shown = [Path(each).name if each == str(_PROGRAM) else each for each in shown]
    result = Training(variant.name, " ".join([*shown, *sizes]))
    environ = environment()
    if "--flag" in variant.options:
        environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    # In an empty folder, where `python -m` finds the package that the environment names.
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, *variant.command(), *sizes, "--output", str(output)]
        command += ["--profile", str(profile.absolute())] if profile else []
        try:
            done = subprocess.run(
                command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            result.note = f"not done within {timeout:.0f} s"
            return result
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            result.note = last[0]
            return result
        found = json.loads(output.read_text(encoding="utf-8"))
    if not all(map(math.isfinite, found["losses"])):
        result.note = "the loss is not finite"
    result.milliseconds, result.weights = found["milliseconds"], found["weights"]
    result.warnings, result.megabytes = found["warnings"], found["megabytes"]
    result.last_loss = found["losses"][-1]
    return result
