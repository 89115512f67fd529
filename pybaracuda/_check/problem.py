# SPDX-License-Identifier: Apache-2.0
"""What a fixed problem is, and what a family says of its own; no family is named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .abi_calls import Value, Values
from .content import Maker

# A number that no binary fraction holds.
TENTH = float(np.float32(0.1))

# Subnormal elements: some 1e-42 in f32, and the first places of the others.
SUBNORMAL = {"f32": float(np.float32(1e-42)), "f64": 7 * 2.0**-1074, "f16": 0x0003, "bf16": 0x8005}


class Problem(NamedTuple):
    """A problem that every variant of some operators gets; a maker for every tensor that is not plain numbers."""

    name: str
    description: str
    values: Values
    makers: Mapping[str, Maker] = MappingProxyType({})
    # Operators that need not have it, by what their names contain.
    without: tuple[str, ...] = ()
    # Whether integers have no such problem.
    floats_only: bool = False
    # Whether the elements among the arguments are subnormal.
    subnormal: bool = False


def as_named(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    """The maker that the problem names."""
    return maker


class Family(NamedTuple):
    """A family's problems: by the name of its family in the ABI table, or of an operator that takes others."""

    problems: Mapping[str, Sequence[Problem]]
    # Arguments that are elements: what they are, by dtype, where a problem does not say it.
    elements: Mapping[str, Mapping[str, Value]] = MappingProxyType({})
    # The maker of a tensor of an operator, given that of the problem; the dtype is there if it is the data's own.
    maker: Callable[[str, str, str | None, Maker], Maker] = as_named
