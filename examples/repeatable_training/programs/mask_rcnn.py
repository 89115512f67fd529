# SPDX-License-Identifier: Apache-2.0
"""torchvision's Mask R-CNN learns where things are and which pixels are theirs, on noise with boxes and masks.

After He et al., Mask R-CNN, 2017; the weights begin at random. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torchvision.models.detection import maskrcnn_resnet50_fpn
from training import device, train

_IMAGES, _HEIGHT, _WIDTH = 2, 96, 128
_THINGS, _CLASSES = 4, 10
# Boxes of an image from which the heads learn; torchvision's default, 512, is for images of many things.
_SAMPLED = 32


def _target() -> dict[str, Any]:
    """Boxes of some classes, each with a mask that is its left half."""
    corners = torch.rand(_THINGS, 2) * torch.tensor([_WIDTH / 2, _HEIGHT / 2])
    boxes = torch.cat([corners, corners + 16 + torch.rand(_THINGS, 2) * 30], 1)
    left, top, right, bottom = boxes.long().T[:, :, None, None]
    rows, columns = torch.arange(_HEIGHT)[:, None], torch.arange(_WIDTH)
    masks = (columns >= left) & (columns < (left + right) // 2) & (rows >= top) & (rows < bottom)
    return {"boxes": boxes, "labels": torch.randint(1, _CLASSES, (_THINGS,)), "masks": masks.byte()}


def main() -> None:
    """Train on the same images in every step."""
    place = device()
    model = maskrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=_CLASSES,
        min_size=_HEIGHT,
        max_size=_WIDTH,
        box_batch_size_per_image=_SAMPLED,
    ).to(place)
    images = [torch.rand(3, _HEIGHT, _WIDTH).to(place) for _ in range(_IMAGES)]
    targets = [{name: each.to(place) for name, each in _target().items()} for _ in range(_IMAGES)]
    # Weights that begin at random leave the numbers at a faster rate.
    train(model, lambda: torch.stack(list(model(images, targets).values())).sum(), rate=0.001)


if __name__ == "__main__":
    main()
