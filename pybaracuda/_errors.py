# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package, one class per status of the C library; nothing here calls the library."""

from __future__ import annotations

__all__ = [
    "BackendUnavailableError",
    "BaracudaError",
    "BufferTooSmallError",
    "InternalError",
    "InvalidProblemError",
    "MisalignedOperandError",
    "UnsupportedError",
    "WorkspaceTooSmallError",
]

_MOST_SHOWN = 80


class BaracudaError(Exception):
    """Base of every error that this package defines.

    Attributes
    ----------
    status : int or None
        The C library's status code, or None when the call never reached the library.
    symbol : str or None
        The C function that answered it.
    detail : str
        The text alone: operator, argument, value found and value wanted.
    """

    status: int | None = None

    def __init__(self, detail: str, *, symbol: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.symbol = symbol


class MisalignedOperandError(BaracudaError):
    """A data pointer is not aligned to its element (of 16 bytes: to 8), or a workspace not to 16 (status 1)."""

    status = 1


class InvalidProblemError(BaracudaError, ValueError):
    """A scalar, shape or pointer that is wrong on every backend (status 2)."""

    status = 2


class UnsupportedError(BaracudaError, NotImplementedError):
    """A valid problem that this backend, or this version, does not do (status 3)."""

    status = 3


class WorkspaceTooSmallError(BaracudaError, ValueError):
    """The given workspace is smaller than the plan's ``workspace_size`` (status 4).

    Attributes
    ----------
    needed, got : int
        Bytes.
    """

    status = 4

    def __init__(self, detail: str, *, symbol: str | None = None, needed: int = 0, got: int = 0) -> None:
        super().__init__(detail, symbol=symbol)
        self.needed = needed
        self.got = got


class BufferTooSmallError(BaracudaError, ValueError):
    """A tensor given to a plan holds fewer elements than the plan reads or writes; found before any C call.

    Attributes
    ----------
    needed, got : int
        Elements.
    """

    def __init__(self, detail: str, *, symbol: str | None = None, needed: int = 0, got: int = 0) -> None:
        super().__init__(detail, symbol=symbol)
        self.needed = needed
        self.got = got


class BackendUnavailableError(BaracudaError):
    """A backend's library, driver or device is not there; the text says which, and what to do."""


class InternalError(BaracudaError):
    """A launch or an allocation failed (status 5); on CUDA the text carries the runtime's own message."""

    status = 5


_BY_STATUS: dict[int, type[BaracudaError]] = {
    1: MisalignedOperandError,
    2: InvalidProblemError,
    3: UnsupportedError,
    5: InternalError,
}


def shown(value: object) -> str:
    """Spell a value that an argument has, in few words whatever it is."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:
        # An integer inside of it has more digits than Python will spell.
        return f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def from_status(status: int, symbol: str, detail: str, *, needed: int = 0, got: int = 0) -> BaracudaError:
    """Build the exception for a status that a C function answered.

    ``needed`` and ``got`` are the workspace's bytes, which the caller knows; they are never read out of the text.
    """
    if status == WorkspaceTooSmallError.status:
        return WorkspaceTooSmallError(detail, symbol=symbol, needed=needed, got=got)
    error = _BY_STATUS.get(status, InternalError)(detail or f"{symbol} answered status {status}", symbol=symbol)
    error.status = status
    return error
