# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle, written element by element from their formula; nothing is computed.

Source: torch.nn.functional.pixel_shuffle; Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
"""

from __future__ import annotations

import numpy as np

from verify.dtypes import Array


def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """[n, c f^2, h, w] as [n, c, h f, w f]: element [c, y, x] is channel (c f + y mod f) f + x mod f."""
    f = upscale_factor
    n, channels, h, w = input.shape
    output = np.empty((n, channels // f**2, h * f, w * f), input.dtype)
    for c, y, x in np.ndindex(*output.shape[1:]):
        output[:, c, y, x] = input[:, (c * f + y % f) * f + x % f, y // f, x // f]
    return output


def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """[n, c, h f, w f] as [n, c f^2, h, w]: pixel_shuffle's elements put back where they came from."""
    f = downscale_factor
    n, c, wide_h, wide_w = input.shape
    output = np.empty((n, c * f**2, wide_h // f, wide_w // f), input.dtype)
    for channel, y, x in np.ndindex(*output.shape[1:]):
        rest = channel % f**2
        output[:, channel, y, x] = input[:, channel // f**2, y * f + rest // f, x * f + rest % f]
    return output
