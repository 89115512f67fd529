# SPDX-License-Identifier: Apache-2.0
"""Images with their channels last, as volumes that have one channel and the channels as their third axis.

Where that axis is left as it is, kernels of volumes compute the bits that kernels of images do, and nothing is copied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format

__all__ = ["as_images", "as_volumes", "has_channels_last", "has_whole_vectors"]

# What the kernels load and store at a time where rows allow it; they go through others element by element, which takes
# longer than the copies.
_VECTOR_BYTES = 16


def has_channels_last(tensor: Any) -> bool:
    """Tell whether a tensor is a batch of images that PyTorch's kernels would answer with channels last."""
    return bool(tensor.dim() == 4 and suggest_memory_format(tensor) == torch.channels_last)


def has_whole_vectors(tensor: Any) -> bool:
    """Tell whether the channels of a pixel are whole vectors."""
    return bool(tensor.shape[1] * tensor.dtype.itemsize % _VECTOR_BYTES == 0)


def as_volumes(images: Any) -> Any:
    """View images [N, C, H, W] as volumes [N, 1, H, W, C]."""
    return images.permute(0, 2, 3, 1).unsqueeze(1)


def as_images(volumes: Any) -> Any:
    """View volumes [N, 1, H, W, C] as images [N, C, H, W]."""
    return volumes.squeeze(1).permute(0, 3, 1, 2)
