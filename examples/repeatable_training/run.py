# SPDX-License-Identifier: Apache-2.0
"""Trains each small program twice in fresh processes on pybaracuda's kernels, and on PyTorch's alone, and compares.

It runs on the pybaracuda that this interpreter has, beside torch, and torchvision for Mask R-CNN.

python examples/repeatable_training/run.py --help
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# An installed package comes before this source tree's, whose libraries may not be built: find it while the tree is not
# on the path yet.
_FOUND = importlib.util.find_spec("pybaracuda")
_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = Path(__file__).resolve().parent / "programs"

# Each with the operators that our kernels must have done, and the module that it needs beside torch.
PROGRAMS = {
    "spatial_transformer": ({"aten::grid_sampler_2d_backward", "aten::reflection_pad2d_backward"}, ""),
    "graph_network": ({"aten::index_add", "aten::scatter_reduce.two", "aten::embedding_dense_backward"}, ""),
    "speech": ({"aten::_ctc_loss", "aten::_ctc_loss_backward"}, ""),
    "recommender": ({"aten::_embedding_bag", "aten::_embedding_bag_dense_backward"}, ""),
    "mask_rcnn": ({"torchvision::_multiscale_roi_align", "torchvision::nms"}, "torchvision"),
}
# How a program is run: what stands before its file on the command line.
_FLAG = """import pathlib, runpy, sys, torch
torch.use_deterministic_algorithms(True)
sys.argv.pop(0)
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")"""
WAYS: dict[str, tuple[str, ...]] = {
    "pytorch": (),
    "flag": ("-c", _FLAG),
    "ours": ("-m", "pybaracuda.torch", "--deterministic", "--seed", "0", "--report"),
}
# How often PyTorch alone is tried until its weights differ.
_TRIES = 4


class Training(NamedTuple):
    """A hash of the weights that a program ended with, the operators whose calls our kernels did, a step's time."""

    weights: str
    ours: frozenset[str]
    milliseconds: float


class FailedError(RuntimeError):
    """A program that did not come to its end."""


def is_usable(module: str) -> bool:
    """Whether a module can be imported; torchvision can be there without the operators that go with this torch."""
    code = f"import {module}; {module}.extension._assert_has_ops()" if module == "torchvision" else f"import {module}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def is_there(program: str) -> bool:
    """Whether this interpreter has what a program needs beside torch."""
    _, module = PROGRAMS[program]
    return not module or is_usable(module)


class RefusedError(FailedError):
    """A program that has an operator which PyTorch's deterministic flag refuses."""


def train(program: str, device: str, way: str, steps: int | None = None) -> Training:
    """Run a program in a fresh process in one of WAYS: on PyTorch's kernels alone, with its flag, or on ours.

    It takes its own number of steps unless another is given.
    """
    package = str(Path(_FOUND.origin).parents[1]) if _FOUND is not None and _FOUND.origin else ""
    path = [package, str(_ROOT), os.environ.get("PYTHONPATH", "")]
    command = [str(_FOLDER / f"{program}.py"), "--device", device]
    command += [] if steps is None else ["--steps", str(steps)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    if way == "flag":
        environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # In an empty folder, since `python -m` looks there before it looks along the path.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, *WAYS[way], *command],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.fullmatch(r"weights (\w+), ([\d.]+) ms a step\n", done.stdout)
    if done.returncode or found is None:
        refused = way == "flag" and "does not have a deterministic implementation" in done.stderr
        kind = RefusedError if refused else FailedError
        raise kind(f"{program} ended with status {done.returncode}: {done.stdout}{done.stderr}")
    # The report's columns: operator, device, calls, ours.
    counted = re.findall(r"^(\w+::[\w.]+) +\w+ +[\d,]+ +([\d,]+)", done.stderr, re.MULTILINE)
    ours = frozenset(operator for operator, count in counted if count != "0")
    return Training(found[1], ours, float(found[2]))


def _line(program: str, device: str) -> tuple[str, bool]:
    """What became of one program, and whether it repeated."""
    wanted, module = PROGRAMS[program]
    if not is_there(program):
        return f"skipped: no usable {module}", True
    runs = [train(program, device, "ours") for _ in range(2)]
    if lacking := wanted - runs[0].ours:
        return f"FAILED: {', '.join(sorted(lacking))} did not run on our kernels", False
    if runs[0].weights != runs[1].weights:
        return f"FAILED: two runs ended with weights {runs[0].weights} and {runs[1].weights}", False
    text = f"two runs on pybaracuda's kernels end with the same weights ({runs[0].weights})"
    alone = train(program, device, "pytorch").weights
    if any(train(program, device, "pytorch").weights != alone for _ in range(_TRIES - 1)):
        return f"{text}; PyTorch alone ends with others each time", True
    return f"{text}; so did {_TRIES} of PyTorch alone with theirs: this machine does not show the difference", True


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each program; 0 if all that could run repeated, 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU where there is one")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"some of {', '.join(PROGRAMS)} (all)")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.programs) - set(PROGRAMS)):
        parser.error(f"there is no {', '.join(unknown)}; wanted some of {', '.join(PROGRAMS)}")
    if importlib.util.find_spec("torch") is None:
        print("no torch")
        return 0
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    repeated = True
    for program in options.programs or PROGRAMS:
        text, is_right = _line(program, device)
        print(f"{program}, {device}: {text}", flush=True)
        repeated = repeated and is_right
    return 0 if repeated else 1


if __name__ == "__main__":
    sys.exit(main())
