# SPDX-License-Identifier: Apache-2.0
"""The calls of every array function on NumPy arrays, out of the records, for tests that run through all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operators import RECORDS, joined
from operators.record import Call

from verify.dtypes import DTYPES


def cases(dtype: Any = np.float32) -> dict[str, Call]:
    """The calls on data of a dtype, by name; those of one function are called after the C operators."""
    return joined(record.calls(dtype) for record in RECORDS)


FUNCTION = pytest.mark.parametrize("name", list(cases()))
DTYPE = pytest.mark.parametrize("token", list(DTYPES))


def listed(result: Any) -> list[Any]:
    """The outputs of a call as a list."""
    return list(result) if isinstance(result, tuple) else [result]
