# SPDX-License-Identifier: Apache-2.0
"""Cuts the photo into regions of like colour and max-pools it over them: an unsorted segment max over region ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import pybaracuda
from verify.bounds import exact
from verify.definitions import segment as definitions
from verify.dtypes import DTYPES, Array

from .checks import Check, equal
from .measure import Case, Input, Output
from .memory import Memory

# A region starts as a square of this part of the photo's height.
_SQUARE = 1 / 25
_ROUNDS = 5
# How many units of colour (of 0 to 1) weigh as much as the side of a square.
_COMPACTNESS = 0.25


@dataclass
class RegionPooling:
    """Which region every pixel is in, the largest values of every region, and where their gradient lands."""

    ids: Array
    num_regions: int
    rows: Array
    maxima: Array
    gradient: Array

    def checks(self) -> list[Check]:
        """Every region and colour sends its gradient to one pixel, which is in the region and holds the maximum."""
        landed = self.gradient != 0
        holders = (landed & (self.rows == self.maxima[self.ids])).sum()
        return [equal("segment max: pixels that hold a maximum and its gradient", int(holders), self.maxima.size)]


def label_regions(photo: Array) -> tuple[Array, int]:
    """A region id for every pixel [H, W] and the number of regions.

    Every region has a centre in place and colour; a pixel joins the nearest of the nine centres around its square, and
    centres move to the mean of their pixels (Achanta et al., SLIC superpixels, 2012).
    """
    channels, height, width = photo.shape
    side = max(height * _SQUARE, 4.0)
    down, across = max(round(height / side), 1), max(round(width / side), 1)
    y, x = np.indices((height, width))
    home_y, home_x = y * down // height, x * across // width
    # Place in sides of a square, colour in units of the compactness: one distance for both.
    features = np.concatenate([np.stack([x, y]) / side, photo / _COMPACTNESS]).reshape(2 + channels, -1)
    ids = (home_y * across + home_x).ravel()
    squares = np.pad(np.arange(down * across).reshape(down, across), 1, mode="edge")
    neighbours = [squares[1 + dy :, 1 + dx :][home_y, home_x].ravel() for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    for _ in range(_ROUNDS):
        counts = np.maximum(np.bincount(ids, minlength=down * across), 1)
        centres = np.stack([np.bincount(ids, row, down * across) / counts for row in features])
        nearest = np.full(ids.shape, np.inf)
        for candidate in neighbours:
            distance = ((features - centres[:, candidate]) ** 2).sum(axis=0)
            ids = np.where(distance < nearest, candidate, ids)
            nearest = np.minimum(distance, nearest)
    used, ids = np.unique(ids, return_inverse=True)
    return ids.reshape(height, width).astype(np.int32), len(used)


def run(photo: Array, memory: Memory) -> RegionPooling:
    """Pool the photo over its regions and send a gradient of 1 back from every maximum."""
    ids, num_regions = label_regions(photo)
    rows = np.ascontiguousarray(photo.reshape(len(photo), -1).T)
    placed_rows, placed_ids = memory.put(rows), memory.put(ids.ravel())
    maxima = memory.get(pybaracuda.unsorted_segment_max(placed_rows, placed_ids, num_regions))
    ones = memory.put(np.ones_like(maxima))
    gradient = memory.get(pybaracuda.unsorted_segment_max_backward(ones, placed_rows, placed_ids))
    return RegionPooling(ids.ravel(), num_regions, rows, maxima, gradient)


def cases(job: RegionPooling, dtype: str) -> list[Case]:
    """Both operators on the job's arrays; a different gradient for every maximum, so that a mix-up is seen."""
    number = DTYPES[dtype]
    rows, ids = job.rows.astype(number), job.ids
    maxima = (job.num_regions, rows.shape[1])
    # Odd numbers below 2048: exact in every float type but bf16, and never 0.
    grad_output = (1 + 2 * (np.arange(job.maxima.size) % 1024)).reshape(maxima).astype(number)
    shape = f"{rows.shape[0]} x {{n}}, {job.num_regions} regions"
    return [
        Case(
            "unsorted_segment_max",
            dtype,
            shape,
            rows.shape[1],
            (Input(rows, 1), Input(ids)),
            (Output(maxima, number, 1),),
            lambda rows, ids, out: pybaracuda.unsorted_segment_max(rows, ids, job.num_regions, out=out),
            lambda: (exact(definitions.unsorted_segment_max(rows, ids, job.num_regions)),),
        ),
        Case(
            "unsorted_segment_max_backward",
            dtype,
            shape,
            rows.shape[1],
            (Input(grad_output, 1), Input(rows, 1), Input(ids)),
            (Output(rows.shape, number, 1),),
            lambda gradient, rows, ids, out: pybaracuda.unsorted_segment_max_backward(gradient, rows, ids, out=out),
            lambda: (exact(definitions.unsorted_segment_max_backward(grad_output, rows, ids)),),
        ),
    ]
