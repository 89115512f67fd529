# SPDX-License-Identifier: Apache-2.0
"""Runs the small programs of examples/repeatable_training in fresh processes, in each of their ways, and keeps what
they end with.
"""

from __future__ import annotations

from examples.repeatable_training import run as repeatable

from .results import Program

__all__ = ["NAMES", "is_there", "run"]

NAMES = tuple(repeatable.PROGRAMS)
is_there = repeatable.is_there
# A step takes some milliseconds on a GPU, mostly the host's, whose times scatter: the median of so many.
_GPU_STEPS = 30


def run(name: str, device: str, runs: int) -> Program:
    """Run a program so often in each way; one that PyTorch's flag refuses is not tried again."""
    result = Program(name)
    steps = _GPU_STEPS if device == "cuda" else None
    for number in range(runs):
        for way in repeatable.WAYS:
            if way in result.notes:
                continue
            try:
                found = repeatable.train(name, device, way, steps)
            except repeatable.RefusedError:
                result.notes[way] = "raises"
            except repeatable.FailedError as error:
                result.notes[way] = f"run {number + 1}: {str(error).strip().splitlines()[-1]}"
            else:
                result.milliseconds.setdefault(way, []).append(found.milliseconds)
                result.weights.setdefault(way, []).append(found.weights)
    return result
