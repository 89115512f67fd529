# SPDX-License-Identifier: Apache-2.0
"""The options that grid_sample has for images and volumes alike; what has a number of axes stands in its family."""

from __future__ import annotations

from typing import Any

from . import _call
from ._errors import UnsupportedError, shown

__all__ = ["GRADIENTS", "PLAIN", "Rule", "Sampling", "check_gradients", "check_options"]

# In the order of the C options' numbers.
_MODES = ("bilinear", "nearest", "bicubic")
_PADDING_MODES = ("zeros", "border", "reflection")
GRADIENTS = ("both", "input", "grid")

# The options that both directions have.
Rule = tuple[str, str, bool]
PLAIN: Rule = ("bilinear", "zeros", False)


def check_options(mode: Any, padding_mode: Any, align_corners: Any, axes: int = 2) -> None:
    """Refuse what no framework has, and bicubic samples of volumes, which have three axes."""
    for name, value, known in (("mode", mode, _MODES), ("padding_mode", padding_mode, _PADDING_MODES)):
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name} is {shown(value)}; wanted one of {', '.join(map(repr, known))}")
    if mode == "bicubic" and axes != 2:
        raise UnsupportedError("mode 'bicubic' is one of images; volumes have 'bilinear' and 'nearest'")
    _call.flag("align_corners", align_corners)


def check_gradients(gradients: str) -> None:
    """Refuse what is no choice of gradients."""
    if gradients not in GRADIENTS:
        raise ValueError(f"gradients is {shown(gradients)}; wanted one of {', '.join(map(repr, GRADIENTS))}")


class Sampling:
    """What descriptors of any number of axes make of their options: the numbers of the C ones."""

    __slots__ = ()

    mode: str
    padding_mode: str
    align_corners: bool
    gradients: str
    shares_input: bool

    @property
    def option_mode(self) -> int:
        """The mode's number."""
        return _MODES.index(self.mode)

    @property
    def option_padding_mode(self) -> int:
        """The padding mode's number."""
        return _PADDING_MODES.index(self.padding_mode)

    @property
    def option_align_corners(self) -> int:
        """Whether corners are aligned, as a number."""
        return int(self.align_corners)

    @property
    def option_gradients(self) -> int:
        """Which gradients there are, as a number."""
        return GRADIENTS.index(getattr(self, "gradients", "both"))

    @property
    def option_shares_input(self) -> int:
        """Whether there is one input for all images, as a number."""
        return int(self.shares_input)

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The gradient that is not computed."""
        absent = {"input": ("grad_grid",), "grid": ("grad_input",)}
        return frozenset(absent.get(getattr(self, "gradients", "both"), ()))
