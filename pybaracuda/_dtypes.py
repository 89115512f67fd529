# SPDX-License-Identifier: Apache-2.0
"""What the package knows of dtypes: names, widths, order, and their types in NumPy, ctypes and `struct`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _abi
from ._forking import first_use

__all__ = [
    "CANONICAL_NANS",
    "CTYPES",
    "DTYPE_NAMES",
    "EXTENSION_DTYPES",
    "FLOATS",
    "INDEX_CASTS",
    "INTEGER_LIMITS",
    "NUMPY_TOKENS",
    "STRUCT_CODES",
    "WIDTH_ORDER",
    "Bits128",
    "dtype_name",
    "item_bytes",
    "numpy_dtype",
    "numpy_token",
]

# What indices of a dtype are converted to; None is native. uint64 indices from 2**63 on become negative: out of range.
INDEX_CASTS = {
    **{"i32": None, "i64": None, "s8": "i32", "u8": "i32"},
    **{"s16": "i32", "u16": "i32", "u32": "i64", "u64": "i64"},
}

# The ABI's dtype tokens and the other dtypes that arrays may have, with the names that users know.
DTYPE_NAMES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "s8": "int8",
    "u8": "uint8",
    "s16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}
_ITEM_BYTES = {
    **{token: _abi.DTYPE_BYTES[token] for token in DTYPE_NAMES if token in _abi.DTYPE_BYTES},
    "s16": 2, "u16": 2, "u32": 4, "u64": 8, "bool": 1, "complex64": 8, "complex128": 16, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
FLOATS = ("f32", "f64", "f16", "bf16")
# Of two floats the one with the greater number holds every value of the other.
WIDTH_ORDER = {"f16": 0, "bf16": 0, "f32": 1, "f64": 2}
# Those that NumPy has from ml_dtypes alone. They have no buffer protocol.
EXTENSION_DTYPES = frozenset({"bf16", "f8e4m3", "f8e5m2"})
# The bits of the one NaN that arithmetic stores, for the dtypes that results can be narrowed to.
CANONICAL_NANS = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000}


class Bits128(ctypes.Structure):
    """The bit pattern of an element of 16 bytes."""

    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


# How a C function takes one element; 16-bit floats as their bits.
CTYPES: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "f16": ctypes.c_uint16,
    "bf16": ctypes.c_uint16,
    "b8": ctypes.c_uint8,
    "b16": ctypes.c_uint16,
    "b32": ctypes.c_uint32,
    "b64": ctypes.c_uint64,
    "b128": Bits128,
}
# The `struct` code of one element; floats as their bits.
STRUCT_CODES = {"f32": "I", "f64": "Q", "f16": "H", "bf16": "H", "i32": "i", "i64": "q",
                "b8": "B", "b16": "H", "b32": "I", "b64": "Q", "b128": "QQ"}  # fmt: skip
INTEGER_LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}

_TOKENS_BY_NAME = {name: token for token, name in DTYPE_NAMES.items()}
# The tokens of NumPy's dtypes that were met.
NUMPY_TOKENS: dict[Any, str] = {}
_NUMPY_DTYPES: dict[str, Any] = {}


def dtype_name(token: str) -> str:
    """Spell a dtype as users know it."""
    return DTYPE_NAMES.get(token, token)


def item_bytes(token: str) -> int | None:
    """Answer the bytes of one element, or None for a dtype that has no token."""
    return _ITEM_BYTES.get(token)


def numpy_token(dtype: Any) -> str:
    """Name a NumPy dtype by its token, or by NumPy's own name where there is no token."""
    token = NUMPY_TOKENS.get(dtype)
    if token is None:
        name = dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
        token = _TOKENS_BY_NAME.get(name, name)
        if token in DTYPE_NAMES:
            NUMPY_TOKENS[dtype] = token
    return token


def numpy_dtype(token: str) -> Any:
    """Answer the NumPy dtype of a token; some come from ml_dtypes."""
    dtype = _NUMPY_DTYPES.get(token)
    if dtype is None:
        if token in EXTENSION_DTYPES:
            name = DTYPE_NAMES[token]
            try:
                with first_use():
                    import ml_dtypes
            except ImportError:
                raise TypeError(f"{name} arrays of NumPy need ml_dtypes: pip install pybaracuda[bf16]") from None
            dtype = np.dtype(getattr(ml_dtypes, name))
        else:
            dtype = np.dtype(DTYPE_NAMES[token])
        _NUMPY_DTYPES[token] = dtype
    return dtype
