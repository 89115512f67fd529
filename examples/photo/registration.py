# SPDX-License-Identifier: Apache-2.0
"""Registers a rotated, shifted and scaled copy of the photo by gradient descent on an affine map.

The loss is the mean squared difference over the pixels that photo and copy both cover; its gradient goes back through
grid_sample and affine_grid. The six numbers of the map are free: nothing is told about rotation or scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import pybaracuda
from verify.definitions import affine_grid, grid_sample
from verify.dtypes import DTYPES, Array

from .checks import Check, at_least, at_most
from .measure import Case, Input, Output
from .memory import Memory

# What the copy was made with: it shows the photo turned, shrunk or grown, and moved, in parts of its extents.
ANGLE_DEGREES = 14.0
SCALE = 1.12
SHIFT = (0.08, -0.06)

LEAST_LOSS_RATIO = 20.0
LARGEST_ERROR = 0.01

# The coarsest picture has about this many rows. There the blur is widest, so that edges far from home still pull.
_COARSEST_ROWS = 75
_COARSE_BLURS = {"wide blur": 40, "less blur": 10, "little blur": 2}
_FINER_BLUR = 1
_STEPS = 40
_STEPS_PER_CURVATURE = 4
# A stage is done when a step lowers its loss by less than this part.
_DONE = 1e-4
_LEAST_RATE = 1e-3
# A pixel counts as covered when all but this part of its weight comes from pixels that the copy really has.
_UNCOVERED = 1e-3


@dataclass
class Registration:
    """What the job found; `losses` has one (stage, loss at full size) per step, and stages have names."""

    copy: Array
    truth: Array
    found: Array
    aligned: Array
    covered: Array
    loss_before: float
    loss_after: float
    error: float
    losses: list[tuple[str, float]] = field(default_factory=list)

    @property
    def loss_ratio(self) -> float:
        """How many times smaller the loss has become, both at full size."""
        return self.loss_before / self.loss_after if self.loss_after > 0 else math.inf

    def checks(self) -> list[Check]:
        """What the registration promises."""
        return [
            at_least("registration: the loss falls", self.loss_ratio, LEAST_LOSS_RATIO, " times"),
            at_most(
                "registration: corners off, as a part of the way they had to go",
                100 * self.error,
                100 * LARGEST_ERROR,
                " %",
            ),
        ]


def _similarity(height: int, width: int) -> Array:
    """The map [2, 3] from the copy's normalised coordinates to the photo's."""
    angle = math.radians(ANGLE_DEGREES)
    cosine, sine = math.cos(angle) / SCALE, math.sin(angle) / SCALE
    # A rotation of pixels is not one of normalised coordinates unless the picture is square.
    aspect = height / width
    return np.array([[cosine, -sine * aspect, SHIFT[0]], [sine / aspect, cosine, SHIFT[1]]])


def _inverse(theta: Array) -> Array:
    inverse = np.linalg.inv(np.vstack([theta, [0.0, 0.0, 1.0]]))
    return np.asarray(inverse[:2])


def _make_copy(photo: Array) -> tuple[Array, Array, Array]:
    """The copy and where it has pixels, made in float64 without the library, and the map that undoes it."""
    _, height, width = photo.shape
    theta = _similarity(height, width)
    grid = affine_grid.affine_grid(theta[None], (1, 1, height, width)).value
    copy = grid_sample.grid_sample_2d(photo[None], grid).value[0].astype(np.float32)
    covered = grid_sample.grid_sample_2d(np.ones((1, 1, height, width)), grid).value[0].astype(np.float32)
    return copy, covered, _inverse(theta)


def _halved(planes: Array) -> Array:
    """Means of 2 x 2 pixels, which leave normalised coordinates where they are."""
    channels, height, width = planes.shape
    even = planes[:, : height // 2 * 2, : width // 2 * 2]
    return np.asarray(even.reshape(channels, height // 2, 2, width // 2, 2).mean(axis=(2, 4), dtype=np.float32))


def _blurred(planes: Array, times: int) -> Array:
    """The planes after so many passes of the weights 1, 2, 1 along both axes."""
    for _ in range(times):
        for axis in (1, 2):
            lower = np.concatenate([planes.take([0], axis), planes.take(range(planes.shape[axis] - 1), axis)], axis)
            upper = np.concatenate([planes.take(range(1, planes.shape[axis]), axis), planes.take([-1], axis)], axis)
            planes = (lower + 2 * planes + upper) / 4
    return planes


class _View(NamedTuple):
    """What a stage looks at: the photo, the copy, and 1 where the copy has pixels [1, H, W]."""

    photo: Array
    copy: Array
    covered: Array

    def halved(self) -> _View:
        return _View(_halved(self.photo), _halved(self.copy), _halved(self.covered))

    def blurred(self, times: int) -> _View:
        # Only pixels that the copy has may spread, else its black surroundings would pull at the map.
        whole = (self.covered > 1 - _UNCOVERED).astype(np.float32)
        weight = _blurred(whole, times)
        spread = _blurred(self.copy * whole, times) / np.maximum(weight, _UNCOVERED)
        return _View(_blurred(self.photo, times), spread, whole)


class _Stage:
    """Photo and copy at one size and blur, with loss and gradient of a map between them."""

    def __init__(self, view: _View, memory: Memory) -> None:
        self._photo = view.photo
        self._memory = memory
        self._size = (1, *view.photo.shape)
        # The mask rides along as a fourth channel, so that one call warps both.
        self._copy = memory.put(np.concatenate([view.copy, view.covered])[None])
        self._planes = memory.put(np.ascontiguousarray(view.copy[:, None]))

    def warp(self, theta: Array) -> tuple[Any, Array, Array]:
        """The grid of a map, the copy seen through it, and which of the photo's pixels it covers."""
        grid = pybaracuda.affine_grid(self._memory.put(theta[None].astype(np.float32)), self._size)
        warped = self._memory.get(pybaracuda.grid_sample(self._copy, grid))[0]
        return grid, warped[:-1], warped[-1] > 1 - _UNCOVERED

    def loss(self, theta: Array) -> float:
        """Mean squared difference over the covered pixels."""
        _, warped, covered = self.warp(theta)
        return self._mean_square(warped, covered)

    def _mean_square(self, warped: Array, covered: Array) -> float:
        if not covered.any():
            return math.inf
        return float(np.mean((warped - self._photo)[:, covered] ** 2, dtype=np.float64))

    def loss_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """The loss and its gradient with respect to the six numbers of the map."""
        grid, warped, covered = self.warp(theta)
        factor = np.float32(2 / (len(warped) * max(int(covered.sum()), 1)))
        grad_output = np.zeros((1, len(warped) + 1, *warped.shape[1:]), np.float32)
        grad_output[0, :-1] = np.where(covered, factor * (warped - self._photo), 0)
        _, grad_grid = pybaracuda.grid_sample_backward(self._memory.put(grad_output), self._copy, grid)
        grad_theta = pybaracuda.affine_grid_backward(grad_grid, self._size)
        return self._mean_square(warped, covered), self._memory.get(grad_theta)[0].astype(np.float64)

    def curvature(self, theta: Array) -> Array:
        """The Gauss-Newton matrix [6, 6] of the loss, from the slope of every pixel along x and y."""
        channels, height, width = self._photo.shape
        thetas = np.repeat(theta[None].astype(np.float32), channels, axis=0)
        grid = pybaracuda.affine_grid(self._memory.put(thetas), (channels, 1, height, width))
        ones = self._memory.put(np.ones((channels, 1, height, width), np.float32))
        _, slopes = pybaracuda.grid_sample_backward(ones, self._planes, grid)
        _, _, covered = self.warp(theta)
        slope = self._memory.get(slopes).astype(np.float64)[:, covered]
        base = np.stack([np.ones((height, width))] * 3)
        base[0] = (2 * np.arange(width) + 1) / width - 1
        base[1] = ((2 * np.arange(height) + 1) / height - 1)[:, None]
        jacobian = (slope[..., :, None] * base[:, covered].T[:, None, :]).reshape(-1, 6)
        return np.asarray(jacobian.T @ jacobian * (2 / max(len(jacobian), 1)))


def _preconditioner(stage: _Stage, theta: Array) -> Array:
    curvature = stage.curvature(theta)
    if not np.isfinite(curvature).all():
        return np.zeros((6, 6))
    # A little of the diagonal keeps directions that the picture says nothing about from running away.
    return np.asarray(np.linalg.inv(curvature + 1e-3 * np.diag(np.diag(curvature)) + 1e-12 * np.eye(6)))


def _descend(stage: _Stage, theta: Array, moved: Callable[[Array], None]) -> Array:
    """Gradient descent, preconditioned by a curvature that is renewed now and then; too long steps are halved."""
    loss, gradient = stage.loss_and_gradient(theta)
    rate = 1.0
    for number in range(_STEPS):
        if number % _STEPS_PER_CURVATURE == 0:
            preconditioner = _preconditioner(stage, theta)
        direction = (preconditioner @ gradient.ravel()).reshape(2, 3)
        while rate > _LEAST_RATE and not stage.loss(theta - rate * direction) < loss:
            rate /= 2
        if rate <= _LEAST_RATE:
            break
        theta = theta - rate * direction
        moved(theta)
        before = loss
        loss, gradient = stage.loss_and_gradient(theta)
        rate = min(1.0, 2 * rate)
        if before - loss < _DONE * before:
            break
    return theta


def _corner_error(found: Array, truth: Array, height: int, width: int) -> float:
    """How far the farthest corner is from where it belongs, as a part of the farthest way a corner had to go."""
    corners = np.array([[x, y, 1.0] for x in (-1, 1) for y in (-1, 1)]).T
    pixels = np.array([[width / 2], [height / 2]])
    start = np.eye(2, 3)

    def farthest(one: Array, other: Array) -> float:
        return float(np.linalg.norm(pixels * ((one - other) @ corners), axis=0).max())

    return farthest(found, truth) / farthest(start, truth)


def _stages(view: _View) -> list[tuple[str, _View]]:
    """The views to descend on, coarse to fine, with names."""
    pyramid = [view]
    while pyramid[-1].photo.shape[1] >= 2 * _COARSEST_ROWS:
        pyramid.append(pyramid[-1].halved())
    names = [f"1/{2**halvings} size" if halvings else "full size" for halvings in range(len(pyramid))]
    stages = [(f"{names[-1]}, {blur}", pyramid[-1].blurred(times)) for blur, times in _COARSE_BLURS.items()]
    stages += [(names[at], pyramid[at].blurred(_FINER_BLUR)) for at in range(len(pyramid) - 2, 0, -1)]
    return [*stages, (names[0], view)]


def stage_count(photo: Array) -> int:
    """How many times `run` will call `step`."""
    return len(_stages(_View(photo, photo, photo[:1])))


def run(photo: Array, memory: Memory, step: Callable[[], None]) -> Registration:
    """Make the copy, find the map back, and say how well it went."""
    copy, covered, truth = _make_copy(photo)
    view = _View(photo, copy, covered)
    full = _Stage(view, memory)
    theta = np.eye(2, 3)
    stages = _stages(view)
    losses = [(stages[0][0], full.loss(theta))]
    for name, seen in stages:

        def moved(theta: Array, name: str = name) -> None:
            losses.append((name, full.loss(theta)))

        theta = _descend(_Stage(seen, memory), theta, moved)
        step()
    _, aligned, shared = full.warp(theta)
    return Registration(
        copy=copy,
        truth=truth,
        found=theta,
        aligned=aligned,
        covered=shared,
        loss_before=losses[0][1],
        loss_after=full.loss(theta),
        error=_corner_error(theta, truth, *photo.shape[1:]),
        losses=losses,
    )


def cases(job: Registration, photo: Array, dtype: str) -> list[Case]:
    """The four operators of the registration on its own arrays, at the map that was found."""
    channels, height, width = photo.shape
    number = DTYPES[dtype]
    coordinate = number if dtype == "f64" else DTYPES["f32"]  # coordinates do not fit in 16 bits
    theta = job.found[None].astype(coordinate)
    size = (1, 1, height, width)
    grid = affine_grid.affine_grid(theta, size, coordinate_dtype=coordinate).value.astype(coordinate)
    copy = job.copy[None].astype(number)
    grad_output = (job.aligned - photo)[None].astype(number)
    of_grid = grid_sample.grid_sample_2d_backward_grid(grad_output, copy, grid, coordinate_dtype=coordinate)
    grad_grid = of_grid.value.astype(coordinate)
    image = Input(copy, 1, grid_sample.pixels_read(grid, (height, width), coordinate) / (height * width))
    shape = f"{{n}} x {height} x {width}"

    found = [
        Case(
            "grid_sample_2d",
            dtype,
            shape,
            channels,
            (image, Input(grid)),
            (Output(copy.shape, number, 1),),
            lambda image, grid, out: pybaracuda.grid_sample(image, grid, out=out),
            lambda: (grid_sample.grid_sample_2d(copy, grid, coordinate_dtype=coordinate),),
        ),
        Case(
            "grid_sample_2d_backward",
            dtype,
            shape,
            channels,
            (Input(grad_output, 1), image, Input(grid)),
            (Output(copy.shape, number, 1), Output(grid.shape, coordinate)),
            lambda gradient, image, grid, out: pybaracuda.grid_sample_backward(gradient, image, grid, out=out),
            lambda: grid_sample.grid_sample_2d_backward(grad_output, copy, grid, coordinate_dtype=coordinate),
        ),
    ]
    if number != coordinate:
        return found  # the grid's operators have no 16-bit types
    return [
        Case(
            "affine_grid_2d",
            dtype,
            f"{{n}} x {height} x {width} x 2",
            1,
            (Input(theta, 0),),
            (Output(grid.shape, coordinate, 0),),
            lambda theta, out: pybaracuda.affine_grid(theta, (theta.shape[0], 1, height, width), out=out),
            lambda: (affine_grid.affine_grid(theta, size, coordinate_dtype=coordinate),),
        ),
        Case(
            "affine_grid_2d_backward",
            dtype,
            f"{{n}} x {height} x {width} x 2",
            1,
            (Input(grad_grid, 0),),
            (Output(theta.shape, coordinate, 0),),
            lambda gradient, out: pybaracuda.affine_grid_backward(
                gradient, (gradient.shape[0], 1, height, width), out=out
            ),
            lambda: (affine_grid.affine_grid_backward(grad_grid, size, coordinate_dtype=coordinate),),
        ),
        *found,
    ]
