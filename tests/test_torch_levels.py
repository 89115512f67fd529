# SPDX-License-Identifier: Apache-2.0
"""What install() does to torchvision's pooling from several maps, on a stub of its module and, where it is, on it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
import torch_calls

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch import _diversions
from pybaracuda.torch._diversions import LEVELS

SCALES = [0.25, 0.125, 0.0625, 0.03125]


class LevelMapper:
    """With the fields of torchvision's."""

    def __init__(self, k_min: int = 2, k_max: int = 5, eps: float = 1e-6) -> None:
        self.k_min, self.k_max, self.s0, self.lvl0, self.eps = k_min, k_max, 224, 4, eps


LevelMapper.__module__ = "torchvision.ops.poolers"


def theirs(x_filtered: Any, boxes: Any, output_size: Any, sampling_ratio: int, scales: Any, mapper: Any) -> Any:
    """In place of torchvision's code."""
    return "theirs"


class Account(SimpleNamespace):
    """Where calls are counted."""


@pytest.fixture
def account() -> Account:
    from collections import Counter

    return Account(ours=0, fallbacks=Counter())


@pytest.fixture
def ours(account: Account) -> Any:
    """What stands in torchvision's module while something is installed."""
    return _diversions._levels(theirs, lambda function, device: account if function == LEVELS else None)


def maps(rng: np.random.Generator, dtype: Any = torch.float32) -> list[Any]:
    return [
        torch.tensor(rng.standard_normal((2, 3, 48 >> level, 64 >> level)), dtype=dtype, requires_grad=True)
        for level in range(4)
    ]


def boxes(rng: np.random.Generator, dtype: Any = torch.float32) -> list[Any]:
    found = []
    for count in (9, 14):
        low = rng.uniform(0, 100, (count, 2))
        found.append(torch.tensor(np.concatenate([low, low + np.exp(rng.uniform(2, 7, (count, 2)))], 1), dtype=dtype))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_call_is_ours_with_its_gradients(ours: Any, account: Account, rng: np.random.Generator, dtype: Any) -> None:
    images, regions = maps(rng, dtype), boxes(rng, dtype)
    found = ours(images, regions, (7, 7), 2, SCALES, LevelMapper())
    assert account.ours == 1
    assert not account.fallbacks
    rows = [each if dtype == torch.float64 else each.float() for each in regions]
    wanted = pybaracuda.roi_align_levels([each.detach() for each in images], rows, 7, SCALES, 2, False)
    assert found.dtype == dtype
    assert torch.equal(found, wanted)
    gradient = torch.tensor(rng.standard_normal(found.shape), dtype=dtype)
    gradients = torch.autograd.grad(found, images, gradient)
    others = pybaracuda.roi_align_levels_backward(gradient, rows, [each.shape for each in images], SCALES, 2, False)
    for mine, other in zip(gradients, others, strict=True):
        assert torch.equal(mine, other)


def test_autocast_takes_boxes_of_another_dtype(ours: Any, account: Account, rng: np.random.Generator) -> None:
    images, regions = maps(rng, torch.bfloat16), boxes(rng)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(images, regions, (7, 7), 2, SCALES, LevelMapper())
        assert ours(maps(rng, torch.float64), regions, (7, 7), 2, SCALES, LevelMapper()) == "theirs"
    assert found.dtype == torch.bfloat16
    assert (account.ours, dict(account.fallbacks)) == (1, {"dtype torch.float64 under autocast": 1})
    assert ours(images, regions, (7, 7), 2, SCALES, LevelMapper()) == "theirs"


def test_the_deterministic_flag_changes_nothing(ours: Any, rng: np.random.Generator) -> None:
    images, regions = maps(rng), boxes(rng)
    before = ours(images, regions, (7, 7), 2, SCALES, LevelMapper())
    torch.use_deterministic_algorithms(True)
    try:
        after = ours(images, regions, (7, 7), 2, SCALES, LevelMapper())
        gradients = torch.autograd.grad(after.sum(), images)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(before, after)
    for mine, other in zip(gradients, torch.autograd.grad(before.sum(), images), strict=True):
        assert torch.equal(mine, other)


class OwnMapper(LevelMapper):
    """Whose answers nobody knows."""


def changed(**fields: Any) -> dict[str, Any]:
    return fields


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mapper": OwnMapper()}, "a mapper of its own"),
        ({"mapper": LevelMapper(eps=1e-3)}, "a mapper of its own"),
        ({"mapper": LevelMapper(k_max=6)}, "a mapper of its own"),
        ({"mapper": None}, "a mapper of its own"),
        ({"scales": None}, "shapes that do not fit"),
        ({"scales": SCALES[:3]}, "shapes that do not fit"),
        ({"boxes": []}, "shapes that do not fit"),
        ({"boxes": [torch.zeros(2, 5)]}, "shapes that do not fit"),
        ({"boxes": [torch.zeros(2, 4)] * 3}, "shapes that do not fit"),
        ({"boxes": [torch.zeros(2, 4, dtype=torch.float64)]}, "operands of several dtypes"),
        ({"x_filtered": [torch.zeros(2, 3, 0, 4)] * 4}, "shapes that do not fit"),
        ({"x_filtered": [torch.zeros(2, 3, 4, 4, dtype=torch.int32)] * 4}, "dtype torch.int32"),
    ],
)
def test_other_calls_are_torchvisions(
    ours: Any, account: Account, rng: np.random.Generator, changes: dict[str, Any], reason: str
) -> None:
    given: dict[str, Any] = {
        "x_filtered": maps(rng), "boxes": boxes(rng), "output_size": (7, 7), "sampling_ratio": 2, "scales": SCALES,
        "mapper": LevelMapper(),
    }  # fmt: skip
    assert ours(**{**given, **changes}) == "theirs"
    assert (account.ours, dict(account.fallbacks)) == (0, {reason: 1})


def test_what_nothing_takes_over_is_torchvisions(rng: np.random.Generator) -> None:
    ours = _diversions._levels(theirs, lambda function, device: None)
    assert ours(maps(rng), boxes(rng), (7, 7), 2, SCALES, LevelMapper()) == "theirs"
    assert ours([], [], (7, 7), 2, SCALES, LevelMapper()) == "theirs"


def test_a_function_with_other_parameters_stays() -> None:
    def newer(x_filtered: Any, boxes: Any, output_size: Any, sampling_ratio: int, mapper: Any) -> None:
        """As no version that is known."""

    assert _diversions._levels(newer, lambda function, device: None) is newer


@pytest.fixture
def poolers() -> Iterator[ModuleType]:
    """A stub in place of torchvision's module."""
    name = "torchvision.ops.poolers"
    before = sys.modules.get(name)
    module = ModuleType(name)
    module._multiscale_roi_align = theirs  # type: ignore[attr-defined]
    sys.modules[name] = module
    yield module
    if before is None:
        del sys.modules[name]
    else:
        sys.modules[name] = before


def test_an_installation_puts_it_in_place_and_takes_it_away(poolers: Any) -> None:
    with pybaracuda.torch.install(ops=["roi_align"]):
        assert poolers._multiscale_roi_align is not theirs
        assert inspect.signature(poolers._multiscale_roi_align) == inspect.signature(theirs)
    assert poolers._multiscale_roi_align is theirs
    with pybaracuda.torch.install(exclude=["roi_align"]):
        assert poolers._multiscale_roi_align is theirs


# Without a torchvision that goes with this torch there is no such comparison.
if available("torchvision"):

    def test_torchvisions_pooler_agrees(rng: np.random.Generator) -> None:
        from torchvision.ops import MultiScaleRoIAlign

        images, regions = maps(rng, torch.float64), boxes(rng, torch.float64)
        names = [str(level) for level in range(4)]
        pooler = MultiScaleRoIAlign(names, 7, 2)
        sizes = [(192, 256)] * 2
        wanted = pooler(dict(zip(names, images, strict=True)), regions, sizes)
        others = torch.autograd.grad(wanted.square().sum(), images)
        before = torch_calls.ours(LEVELS)
        with pybaracuda.torch.install(ops=["roi_align"]):
            found = pooler(dict(zip(names, images, strict=True)), regions, sizes)
        assert torch_calls.ours(LEVELS) == before + 1
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        for mine, other in zip(torch.autograd.grad(found.square().sum(), images), others, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-11)
