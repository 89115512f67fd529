# SPDX-License-Identifier: Apache-2.0
"""One record for each family of operators, which the tables of all tests are read from.

Every module or folder here is a family and has a `RECORD`; nothing else lists them. record.py says what one holds.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from pybaracuda import _abi

from .record import Record

NO_FAMILIES = ("record",)


def records() -> tuple[Record, ...]:
    """The families' records in the order of the ABI table; each family of the table has one."""
    found: dict[str, Record] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name not in NO_FAMILIES:
            record = import_module(f"{__name__}.{module.name}").RECORD
            found |= dict.fromkeys(record.families, record)
    families = dict.fromkeys(operator.family for operator in _abi.OPERATORS.values())
    for family in families:
        if family not in found:
            raise LookupError(f"{family} has no record: add tests/operators/{family}.py")
    return tuple(dict.fromkeys(found[family] for family in families))


RECORDS = records()


def joined(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The families' tables as one; a name belongs to one family, or families that share a function say it alike."""
    table: dict[str, Any] = {}
    for part in tables:
        differ = sorted(name for name in table.keys() & part.keys() if table[name] != part[name])
        assert not differ, f"two records have {differ}"
        table |= part
    return table


# The record that has a call, by the call's name.
OF_CALL = {name: record for record in RECORDS for name in record.calls(np.float32)}
