# SPDX-License-Identifier: Apache-2.0
"""Maximum unpooling and its gradient, element by element; nothing is rounded.

Source: torch.nn.functional.max_unpool1d to max_unpool3d. A tensor here is [N, C, D, H, W].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dtypes import Array


def max_unpool(input: Any, indices: Any, output_size: tuple[int, int, int]) -> Array:
    """Zeros in planes of `output_size`, and in them each element at its index: the last of a place stays."""
    elements, named = np.asarray(input), np.asarray(indices)
    n, c = elements.shape[:2]
    plane = output_size[0] * output_size[1] * output_size[2]
    output = np.zeros((n, c, plane), elements.dtype)
    for place in np.ndindex(*elements.shape):
        index = int(named[place])
        if 0 <= index < plane:
            output[place[0], place[1], index] = elements[place]
    return output.reshape(n, c, *output_size)


def max_unpool_backward(grad_output: Any, indices: Any) -> Array:
    """To each element the gradient of its place, 0 where it has none."""
    gradient, named = np.asarray(grad_output), np.asarray(indices)
    n, c = gradient.shape[:2]
    flat = gradient.reshape(n, c, int(np.prod(gradient.shape[2:])))
    found = np.zeros(named.shape, gradient.dtype)
    for place in np.ndindex(*named.shape):
        index = int(named[place])
        if 0 <= index < flat.shape[2]:
            found[place] = flat[place[0], place[1], index]
    return found
