# SPDX-License-Identifier: Apache-2.0
"""grid_sample of volumes: descriptors and plans. The array functions are grid_sample's, which take any rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from . import _abi
from ._descriptor import Descriptor
from ._plan import Plan
from ._sampling import Sampling, check_gradients, check_options

__all__ = [
    "GridSample3dBackwardDescriptor",
    "GridSample3dBackwardPlan",
    "GridSample3dDescriptor",
    "GridSample3dPlan",
]


@dataclass(frozen=True, slots=True)
class _GridSample3dProblem(Sampling, Descriptor):
    """What both directions of grid_sample of volumes are described by."""

    n: int
    c: int
    id: int
    ih: int
    iw: int
    od: int
    oh: int
    ow: int
    element: str = "f32"
    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False
    shares_input: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        check_options(self.mode, self.padding_mode, self.align_corners, axes=3)

    @property
    def input_d(self) -> int:
        """The ABI's name for `id`."""
        return self.id

    @property
    def input_h(self) -> int:
        """The ABI's name for `ih`."""
        return self.ih

    @property
    def input_w(self) -> int:
        """The ABI's name for `iw`."""
        return self.iw

    @property
    def output_d(self) -> int:
        """The ABI's name for `od`."""
        return self.od

    @property
    def output_h(self) -> int:
        """The ABI's name for `oh`."""
        return self.oh

    @property
    def output_w(self) -> int:
        """The ABI's name for `ow`."""
        return self.ow

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; what the table says of the input is more than an expression of extents."""
        if tensor.name == "input":
            return (1 if self.shares_input else self.n, self.c, self.id, self.ih, self.iw)
        return Descriptor.tensor_shape(self, tensor)


@dataclass(frozen=True, slots=True)
class GridSample3dDescriptor(_GridSample3dProblem):
    """A grid_sample problem of volumes.

    Parameters
    ----------
    n, c : int
        Volumes and channels.
    id, ih, iw : int
        Planes, rows and columns of the input.
    od, oh, ow : int
        Planes, rows and columns of the output.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output. The grid is f64 for f64, else f32.
    mode : {"bilinear", "nearest"}
        "bilinear" is trilinear, as torch calls it.
    padding_mode : {"zeros", "border", "reflection"}
    align_corners : bool
    shares_input : bool
        Whether the input is one volume, [1, c, id, ih, iw], of which the samples of all n are taken.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    ValueError
        If there is no such mode.
    UnsupportedError
        If a mode is not wired yet.
    """

    operator: ClassVar[str] = "grid_sample_3d"


@dataclass(frozen=True, slots=True)
class GridSample3dBackwardDescriptor(_GridSample3dProblem):
    """The gradients of grid_sample of volumes.

    Parameters
    ----------
    n, c, id, ih, iw, od, oh, ow, element, mode, padding_mode, align_corners, shares_input
        As in :class:`GridSample3dDescriptor`. The gradient of an input that is shared has n volumes, of which nothing
        is added up.
    gradients : {"both", "input", "grid"}
        Which gradients are computed.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As :class:`GridSample3dDescriptor`.
    """

    gradients: str = "both"

    operator: ClassVar[str] = "grid_sample_3d_backward"

    def __post_init__(self) -> None:
        _GridSample3dProblem.__post_init__(self)
        check_gradients(self.gradients)

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; what the table says of the gradients is more than an expression of extents."""
        if tensor.name == "grad_input":
            return (self.n, self.c, self.id, self.ih, self.iw)
        if tensor.name == "grad_grid":
            return (self.n, self.od, self.oh, self.ow, 3)
        return _GridSample3dProblem.tensor_shape(self, tensor)


class GridSample3dPlan(Plan):
    """Tensors ``input`` [n or 1, c, id, ih, iw], ``grid`` [n, od, oh, ow, 3], ``output`` [n, c, od, oh, ow]."""

    __slots__ = ()
    descriptor_type = GridSample3dDescriptor
    category = "image"
    layout = "ncdhw"


class GridSample3dBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input``, ``grid`` and, where they are computed, ``grad_input`` and ``grad_grid``."""

    __slots__ = ()
    descriptor_type = GridSample3dBackwardDescriptor
    category = "image"
    layout = "ncdhw"
