# SPDX-License-Identifier: Apache-2.0
"""The fixed problems of every family of operators, a file each; what cases they make is decided in cases.py."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ..problem import Family, Problem


@cache
def _families() -> dict[str, Family]:
    """By the names that have problems: of a family of the ABI table, or of an operator."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: module.FAMILY for module in modules for name in module.FAMILY.problems}


def of_operator(operator: str, family: str) -> tuple[Family, tuple[Problem, ...]]:
    """An operator's family and its problems. An operator without any is an error, not a gap."""
    name = operator if operator in _families() else family
    if name not in _families():
        raise LookupError(f"{operator} has no problems: add pybaracuda/_check/problems/{family}.py")
    found = _families()[name]
    return found, tuple(found.problems[name])
