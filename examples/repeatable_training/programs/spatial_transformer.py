# SPDX-License-Identifier: Apache-2.0
"""A spatial transformer learns to turn pictures back: F.affine_grid and F.grid_sample, and reflected borders.

After Jaderberg et al., Spatial Transformer Networks, 2015. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from training import device, train


class SpatialTransformer(nn.Module):  # type: ignore[misc]
    """Finds an affine map for each picture and samples the picture along it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.ReflectionPad2d(2), nn.Conv2d(8, 8, 5, stride=2), nn.ReLU()
        )
        self.affine = nn.LazyLinear(6)

    def forward(self, pictures: Any) -> Any:
        """Answer the pictures as they were found to be."""
        turned = self.features(pictures).flatten(1)
        identity = torch.tensor([1.0, 0, 0, 0, 1, 0], device=pictures.device)
        theta = (identity + 0.1 * self.affine(turned)).reshape(-1, 2, 3)
        grid = functional.affine_grid(theta, list(pictures.shape), align_corners=False)
        return functional.grid_sample(pictures, grid, align_corners=False)


def main() -> None:
    """Train on smooth noise and its turned copies."""
    place = device()
    coarse = torch.randn(8, 3, 8, 8)
    pictures = functional.interpolate(coarse, scale_factor=8, mode="nearest").to(place)
    turned = pictures.rot90(1, (2, 3)).contiguous()
    model = SpatialTransformer().to(place)
    model(turned)
    train(model, lambda: functional.mse_loss(model(turned), pictures))


if __name__ == "__main__":
    main()
