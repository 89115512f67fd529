# SPDX-License-Identifier: Apache-2.0
"""The facts of the ABI table, a file for each operator family; only facts, in the vocabulary of tools/abi/model.py.

Every module here is a family: its `OPERATORS`, and `ORDER`, its place in the header. Numbers are ten apart, so that a
family can stand beside one that it is like. tools/abi/generate.py then writes what follows from it. The rest is its
formula in native/ops/<folder> and its stamp in that folder's abi.cc; the kernels of a new dtype are listed in launch.h.
CONTRIBUTING.md lists what else a family has. Tests that walk the table say what they want to know of it.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from tools.abi.model import Operator


def all_operators() -> tuple[Operator, ...]:
    """The operators of every family, in the order of the header."""
    families: dict[int, ModuleType] = {}
    for found in pkgutil.iter_modules(__path__):
        family = import_module(f"{__name__}.{found.name}")
        other = families.setdefault(family.ORDER, family)
        if other is not family:
            names = f"{other.__name__} and {family.__name__}"
            raise ValueError(f"{names} both have ORDER {family.ORDER}: the new one takes a free number")
    return tuple(operator for order in sorted(families) for operator in families[order].OPERATORS)
