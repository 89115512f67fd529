# SPDX-License-Identifier: Apache-2.0
"""A speech recogniser hears letters: convolutions over time, and the loss over all ways to spell a text in that time.

After Graves et al., Connectionist Temporal Classification, 2006. It knows nothing of pybaracuda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from training import device, train

_TEXTS, _LETTERS, _FRAMES, _BANDS, _WIDTH = 32, 28, 160, 20, 32
# The shortest and the longest text.
_SHORT, _LONG = 10, 40


class Recogniser(nn.Module):  # type: ignore[misc]
    """Answers log-probabilities of a blank and of the letters for every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = nn.Sequential(
            nn.Conv1d(_BANDS, _WIDTH, 5, padding=2), nn.ReLU(), nn.Conv1d(_WIDTH, _WIDTH, 5, padding=2), nn.ReLU()
        )
        self.scores = nn.Linear(_WIDTH, 1 + _LETTERS)

    def forward(self, bands: Any) -> Any:
        """Take [text, band, frame] and answer [frame, text, letter]."""
        return functional.log_softmax(self.scores(self.heard(bands).permute(2, 0, 1)), 2)


def main() -> None:
    """Train on noise in which every letter lifts bands of its own for some frames."""
    place = device()
    lengths = torch.randint(_SHORT, _LONG + 1, (_TEXTS,))
    targets = torch.randint(1, 1 + _LETTERS, (_TEXTS, _LONG))
    frames = torch.arange(_FRAMES)
    said = targets.gather(1, (frames * lengths[:, None] // _FRAMES).clamp(max=_LONG - 1))
    voices = torch.randn(1 + _LETTERS, _BANDS)
    bands = (voices[said].transpose(1, 2) + torch.randn(_TEXTS, _BANDS, _FRAMES)).to(place)
    targets, lengths = targets.to(place), lengths.to(place)
    durations = torch.full((_TEXTS,), _FRAMES, device=place)
    model = Recogniser().to(place)
    train(model, lambda: functional.ctc_loss(model(bands), targets, durations, lengths))


if __name__ == "__main__":
    main()
