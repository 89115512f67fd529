# SPDX-License-Identifier: Apache-2.0
"""What the programs share: their options, ten steps of SGD and a hash of the weights. No model is here."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from typing import Any

import torch

_STEPS = 10


def device() -> str:
    """The device that the command line names, and equal seeds on it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    return str(parser.parse_args().device)


def train(model: torch.nn.Module, loss: Callable[[], Any]) -> None:
    """Take ten steps and print a hash of the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
    assert torch.isfinite(value), "the training has left the numbers"
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.cpu().numpy().tobytes())
    print(f"weights {found.hexdigest()[:16]}")
