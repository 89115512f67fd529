# SPDX-License-Identifier: Apache-2.0
"""What is measured: a module for each family of operators, with its cases, their peers, and its rows of the benchmark.

`ORDER` is a module's place in the table, `CUDA` and `CPU` are its rows. Nothing here times or judges anything.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType


def families() -> list[ModuleType]:
    """Every family, in the order of the table."""
    found = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return sorted(found, key=lambda family: (family.ORDER, family.__name__))
