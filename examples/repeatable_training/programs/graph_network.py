# SPDX-License-Identifier: Apache-2.0
"""A graph network classifies nodes: messages are gathered along edges, and added up and averaged where they arrive.

After Hamilton et al., Inductive Representation Learning on Large Graphs, 2017. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from training import device, train

_NODES, _EDGES, _WIDTH, _CLASSES = 2_000, 60_000, 32, 5


class Layer(nn.Module):  # type: ignore[misc]
    """Joins each node's own features with its neighbours' sum and mean."""

    def __init__(self, columns: int, results: int) -> None:
        super().__init__()
        self.own, self.sum, self.mean = (nn.Linear(columns, results) for _ in range(3))

    def forward(self, nodes: Any, sources: Any, targets: Any) -> Any:
        """Answer every node's new features."""
        along = sources[:, None].expand(-1, nodes.shape[1])
        messages = nodes.gather(0, along)
        total = torch.zeros_like(nodes).index_add(0, targets, messages)
        into = targets[:, None].expand(-1, nodes.shape[1])
        mean = torch.zeros_like(nodes).scatter_reduce(0, into, messages, "mean", include_self=False)
        return functional.relu(self.own(nodes) + self.sum(total) / 30 + self.mean(mean))


class GraphNetwork(nn.Module):  # type: ignore[misc]
    """Two layers over learned features of the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = nn.Embedding(_NODES, _WIDTH)
        self.layers = nn.ModuleList([Layer(_WIDTH, _WIDTH), Layer(_WIDTH, _WIDTH)])
        self.classes = nn.Linear(_WIDTH, _CLASSES)

    def forward(self, names: Any, sources: Any, targets: Any) -> Any:
        """Answer every named node's scores."""
        nodes = self.nodes(torch.arange(_NODES, device=names.device))
        for layer in self.layers:
            nodes = layer(nodes, sources, targets)
        return self.classes(nodes[names])


def main() -> None:
    """Train on a random graph, whose edges meet in few nodes more often than in others."""
    place = device()
    sources = torch.randint(0, _NODES, (_EDGES,)).to(place)
    targets = (torch.rand(_EDGES).square() * _NODES).long().to(place)
    names = torch.randint(0, _NODES, (4 * _NODES,)).to(place)
    labels = (names * 7 % _CLASSES).to(place)
    model = GraphNetwork().to(place)
    train(model, lambda: functional.cross_entropy(model(names, sources, targets), labels))


if __name__ == "__main__":
    main()
