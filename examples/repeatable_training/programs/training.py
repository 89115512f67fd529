# SPDX-License-Identifier: Apache-2.0
"""What the programs share: their options, steps of SGD, a hash of the weights and a step's time. No model is here."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

import torch

# As many steps show that weights repeat.
_STEPS = 10
# Steps before a step's time is taken.
_WARM_UP = 4


@cache
def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"steps of training (default: {_STEPS})")
    options = parser.parse_args()
    if options.steps <= _WARM_UP:
        parser.error(f"--steps is {options.steps}; wanted more than the {_WARM_UP} that are not timed")
    return options


def device() -> str:
    """The device that the command line names, and equal seeds on it."""
    torch.manual_seed(0)
    return str(_options().device)


def train(model: torch.nn.Module, loss: Callable[[], Any], rate: float = 0.01) -> None:
    """Take the steps that the command line asks for, and print a hash of the weights and a step's time."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    seconds = []
    for _ in range(_options().steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        if value.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    assert torch.isfinite(value), "the training has left the numbers"
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.cpu().numpy().tobytes())
    print(f"weights {found.hexdigest()[:16]}, {median(seconds[_WARM_UP:]) * 1e3:.3f} ms a step")
