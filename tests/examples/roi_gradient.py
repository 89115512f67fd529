# SPDX-License-Identifier: Apache-2.0
"""The README's Python example; the text between the markers is what it shows."""

# [example-begin]
import numpy as np

import pybaracuda

image = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)  # N, C, H, W
boxes = np.array([[0, 4, 4, 40, 36], [0, 20, 10, 60, 60]], np.float32)  # image, x1, y1, x2, y2
options = {"sampling_ratio": 2, "aligned": True}
pooled = pybaracuda.roi_align(image, boxes, (7, 7), **options)
gradient = pybaracuda.roi_align_backward(np.ones_like(pooled), boxes, image.shape, **options)
print(gradient.shape, f"{gradient.sum():.1f}")  # (1, 3, 64, 64) 294.0: one for each of 2 x 3 x 7 x 7 bins
# [example-end]
