# SPDX-License-Identifier: Apache-2.0
"""The photograph that every job works on: matplotlib's sample picture of Grace Hopper, as float32 planes in [0, 1]."""

from __future__ import annotations

import numpy as np

from verify.dtypes import Array

# Its own height; 600 x 512 pixels.
FULL_HEIGHT = 600
# Extents are multiples of this, so that halving a picture three times keeps every normalised coordinate in place.
_MULTIPLE = 8


def load(height: int = FULL_HEIGHT) -> Array:
    """The photo as [3, height, width], the height rounded down to a multiple of 8."""
    from matplotlib import cbook
    from PIL import Image

    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as file:
        picture = file.convert("RGB")
    rows = height // _MULTIPLE * _MULTIPLE
    columns = height * picture.width // picture.height // _MULTIPLE * _MULTIPLE
    if (columns, rows) != picture.size:
        picture = picture.resize((columns, rows), Image.Resampling.LANCZOS)
    return np.ascontiguousarray(np.asarray(picture, np.float32).transpose(2, 0, 1) / np.float32(255))


def as_image(planes: Array) -> Array:
    """[3, H, W] as the [H, W, 3] that pictures are drawn from, clipped to what can be shown."""
    return np.asarray(np.clip(planes.transpose(1, 2, 0), 0, 1))
