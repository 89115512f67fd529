# SPDX-License-Identifier: Apache-2.0
"""What is known of the dtypes that operators take: names, bit patterns, rounding; no operator is named here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# By the names that the ABI has for them; bf16 is there only where ml_dtypes is.
DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
}
if find_spec("ml_dtypes") is not None:
    import ml_dtypes

    DTYPES["bf16"] = np.dtype(ml_dtypes.bfloat16)
_INTEGERS = {"s8": np.int8, "u8": np.uint8, "i32": np.int32, "i64": np.int64}
_BY_TOKEN: dict[str, np.dtype[Any]] = {**DTYPES, **{token: np.dtype(each) for token, each in _INTEGERS.items()}}
_TOKENS = {dtype.name: token for token, dtype in _BY_TOKEN.items()}

# Half the distance from 1 to the next number: round-to-nearest is off by at most this part of the value.
UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
# The smallest subnormal: below the normal range rounding is off by at most half of it, whatever the value.
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
# The one NaN that arithmetic may store.
CANONICAL_NAN = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8000000000000}

_BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype([("low", np.uint64), ("high", np.uint64)]),
}


def dtype_of(token: str) -> np.dtype[Any]:
    """NumPy's dtype for the ABI's name of one."""
    return _BY_TOKEN[token]


def token_of(dtype: Any) -> str:
    """The ABI's name of a NumPy dtype, or of one that is given by NumPy's name."""
    return _TOKENS[dtype if isinstance(dtype, str) else np.dtype(dtype).name]


def coordinate_dtype(dtype: Any) -> np.dtype[Any]:
    """What positions are computed in: float64 for float64 data, float32 for everything else."""
    return DTYPES["f64"] if np.dtype(dtype) == DTYPES["f64"] else DTYPES["f32"]


def in_float64(values: Any) -> Array:
    """The same numbers in float64; exact for every dtype the operators take."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.asarray(values).astype(np.float64)


def bits(values: Array) -> Array:
    """The elements' bit patterns as unsigned integers."""
    contiguous = np.ascontiguousarray(values)
    return np.asarray(contiguous.view(_BITS[contiguous.dtype.itemsize]).reshape(values.shape))


def rounded(values: Any, dtype: Any) -> Array:
    """float64 values rounded once, to nearest even, with arithmetic's canonical NaN."""
    dtype, values = np.dtype(dtype), np.asarray(values, np.float64)
    if dtype.name not in CANONICAL_NAN:  # integers, which need no rounding
        return np.asarray(values.astype(dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.name == "bfloat16":
            # ml_dtypes goes through float32. Rounding to odd on the way makes that a single rounding.
            single = values.astype(np.float32)
            away = np.abs(single.astype(np.float64)) > np.abs(values)
            truncated = np.where(away, np.nextafter(single, np.float32(0)), single)
            inexact = (truncated.astype(np.float64) != values) & np.isfinite(values)
            odd = (bits(truncated) | inexact.astype(np.uint32)).view(np.float32).reshape(values.shape)
            result = odd.astype(dtype)
        else:
            result = values.astype(dtype)
    patterns = bits(result)
    patterns[np.isnan(values)] = CANONICAL_NAN[dtype.name]
    return patterns.view(dtype)
