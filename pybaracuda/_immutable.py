# SPDX-License-Identifier: Apache-2.0
"""The base of what is shared by all who hold it: kernels, plans, bound calls."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["Immutable"]

Self = TypeVar("Self", bound="Immutable")


class Immutable:
    """Nothing of it can be set or deleted, and its copy is itself; a subclass sets by `object.__setattr__`, once."""

    __slots__ = ("__weakref__",)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be deleted")

    def __copy__(self: Self) -> Self:
        return self

    def __deepcopy__(self: Self, memo: Any) -> Self:
        return self
