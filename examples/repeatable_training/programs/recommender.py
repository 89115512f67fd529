# SPDX-License-Identifier: Apache-2.0
"""A recommender scores items for users: bags of what they have seen, averaged, and the largest of their tags' features.

After Covington et al., Deep Neural Networks for YouTube Recommendations, 2016. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from training import device, train

_USERS, _ITEMS, _TAGS, _WIDTH = 4_000, 500, 60, 32
# Of a user's bag; the last one is seen by nobody, and fills up.
_SEEN, _TAGGED = 12, 6


class Recommender(nn.Module):  # type: ignore[misc]
    """Joins a user's own features with those of the items that the user has seen, and of tags."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(_USERS, _WIDTH)
        self.seen = nn.EmbeddingBag(_ITEMS + 1, _WIDTH, mode="mean", padding_idx=_ITEMS)
        self.tags = nn.EmbeddingBag(_TAGS, _WIDTH, mode="max")
        self.scores = nn.Sequential(nn.Linear(3 * _WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _ITEMS))

    def forward(self, users: Any, seen: Any, tags: Any, begins: Any) -> Any:
        """Answer every user's scores of all items."""
        return self.scores(torch.cat([self.users(users), self.seen(seen), self.tags(tags, begins)], 1))


def main() -> None:
    """Train on random histories, in which some items are far more frequent than others."""
    place = device()
    users = torch.randint(0, _USERS, (2 * _USERS,)).to(place)
    seen = (torch.rand(2 * _USERS, _SEEN).square() * (_ITEMS + 1)).long().to(place)
    lengths = torch.randint(1, 2 * _TAGGED, (2 * _USERS,))
    begins = (lengths.cumsum(0) - lengths).to(place)
    tags = torch.randint(0, _TAGS, (int(lengths.sum()),)).to(place)
    wanted = (users * 7 % _ITEMS).to(place)
    model = Recommender().to(place)
    train(model, lambda: functional.cross_entropy(model(users, seen, tags, begins), wanted))


if __name__ == "__main__":
    main()
