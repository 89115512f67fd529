# SPDX-License-Identifier: Apache-2.0
"""A small detector classifies boxes: features of an image are pooled with torchvision's roi_align on two scales.

After He et al., Mask R-CNN, 2017. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchvision.ops import roi_align

from .training import device, train

_BOXES, _CLASSES = 256, 4


class Detector(nn.Module):  # type: ignore[misc]
    """Pools each box from a fine and a coarse map; answers scores and corrections of the boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU())
        self.scores = nn.Linear(2 * 16 * 7 * 7, _CLASSES)
        self.corrections = nn.Linear(2 * 16 * 7 * 7, 4)

    def forward(self, images: Any, boxes: list[Any]) -> tuple[Any, Any]:
        """Answer scores and corrections of all boxes."""
        fine = self.fine(images)
        pooled = [
            roi_align(features, boxes, 7, scale, sampling_ratio=2, aligned=True)
            for features, scale in ((fine, 1.0), (self.coarse(fine), 0.5))
        ]
        found = torch.cat(pooled, 1).flatten(1)
        return self.scores(found), self.corrections(found)


def main() -> None:
    """Train on noise with boxes that lie on each other, as proposals do."""
    place = device()
    images = torch.randn(2, 3, 96, 128).to(place)
    corners = torch.rand(2, _BOXES, 2) * 40
    boxes = [each.to(place) for each in torch.cat([corners, corners + 8 + torch.rand(2, _BOXES, 2) * 40], 2)]
    labels = torch.randint(0, _CLASSES, (2 * _BOXES,)).to(place)
    wanted = torch.randn(2 * _BOXES, 4).to(place)
    model = Detector().to(place)

    def loss() -> Any:
        scores, corrections = model(images, boxes)
        return functional.cross_entropy(scores, labels) + functional.smooth_l1_loss(corrections, wanted)

    train(model, loss)


if __name__ == "__main__":
    main()
