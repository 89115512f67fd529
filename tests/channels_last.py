# SPDX-License-Identifier: Apache-2.0
"""Images as volumes that have the channels as their third axis, as images with channels last lie in memory."""

from __future__ import annotations

import numpy as np

from verify.dtypes import Array


def as_volumes(images: Array) -> Array:
    """Images [N, C, H, W] as dense volumes [N, 1, H, W, C]."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))[:, None]
