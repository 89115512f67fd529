# SPDX-License-Identifier: Apache-2.0
"""What the fuzzer knows of families of operators beyond the ABI table: a file each, where there is anything to know."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tools.fuzzing.family import Family


@cache
def _by_name() -> dict[str, Family]:
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: module.FAMILY for module in modules for name in module.FAMILY.names}


@cache
def family_of(name: str) -> Family:
    """What is known of a family of the ABI table."""
    return _by_name().get(name) or Family((name,))
