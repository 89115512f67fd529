# SPDX-License-Identifier: Apache-2.0
"""What tests of install() share: which calls our kernels did, errors, waits, fresh tensors, equality; no tests here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import pybaracuda.torch


def ours(operator: str) -> int:
    """How many calls of an operator our kernels have done."""
    return sum(line.ours for line in pybaracuda.torch.report().lines if line.operator == operator)


def all_ours(device: str) -> dict[str, int]:
    """How many calls of each operator our kernels have done on this kind of device."""
    return {line.operator: line.ours for line in pybaracuda.torch.report().lines if line.device == device}


class Hits:
    """Asserts that calls of operators went to our kernels within the block."""

    def __init__(self, *operators: str) -> None:
        self._operators = operators

    def __enter__(self) -> None:
        self._before = {name: ours(name) for name in self._operators}

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None:
            for name, before in self._before.items():
                assert ours(name) > before, f"{name} was not ours: {pybaracuda.torch.report()}"


def messages(call: Callable[[], Any], kinds: Any, device: str) -> tuple[str, str]:
    """What an error says without an installation and with one."""
    found = []
    for installation in (contextlib.nullcontext, lambda: pybaracuda.torch.install(devices=device)):
        with installation(), pytest.raises(kinds) as caught:
            call()
        found.append(str(caught.value))
    return found[0], found[1]


@contextlib.contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Within it PyTorch raises before it waits for a GPU."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def warmed_up(call: Callable[[], Any]) -> None:
    """Call it on another stream, as PyTorch asks for before a capture: kernels are loaded, counters have their room."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)


def fresh(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype).to(device)


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool(torch.equal(one, other))
