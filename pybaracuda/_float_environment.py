# SPDX-License-Identifier: Apache-2.0
"""The calling thread's float mode, and a scope without it: round to nearest, subnormal numbers kept.

A caller, or a framework, may have told its thread to flush subnormal numbers to zero. What this package rounds on the
way to a kernel is part of the promise about bits, so it is rounded as everywhere else.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import lru_cache
from typing import Any

__all__ = ["DefaultFloatEnvironment", "is_zero"]

_SMALLEST_NORMAL = sys.float_info.min
_ONE, _TINY = 1.0, 2.0**-60
# C's FE_DFL_ENV, in glibc as in musl.
_FE_DFL_ENV = ctypes.c_void_p(-1)
# More than any platform's fenv_t.
_FENV_WORDS = 16


@lru_cache(maxsize=1)
def _libm() -> Any:
    """Find fegetenv and fesetenv: in the process, which an interpreter has linked with them, else in their library."""
    process = ctypes.CDLL(None)
    return process if hasattr(process, "fesetenv") else ctypes.CDLL("libm.so.6")


def _is_default() -> bool:
    # Flushed results or operands make the product 0; rounding in another direction moves one of the sums off 1.
    return _SMALLEST_NORMAL * 0.5 > 0.0 and _ONE + _TINY == _ONE and _ONE - _TINY == _ONE


class DefaultFloatEnvironment:
    """A context in which this thread computes in the default float environment; the caller's comes back after it."""

    __slots__ = ("_saved",)

    def __enter__(self) -> None:
        self._saved: Any = None
        if not _is_default():
            self._saved = (ctypes.c_uint64 * _FENV_WORDS)()
            _libm().fegetenv(self._saved)
            _libm().fesetenv(_FE_DFL_ENV)

    def __exit__(self, *error: object) -> None:
        if self._saved is not None:
            _libm().fesetenv(self._saved)


def is_zero(value: float) -> bool:
    """Tell whether a float is 0.0 or -0.0 by its bits: a thread that flushes takes subnormal numbers for equal to 0."""
    (found,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(found) << 1 & (1 << 64) - 1 == 0
