# SPDX-License-Identifier: Apache-2.0
"""Kernels written in Python that torch.compile runs as they are.

Where a program's graph ends in front of an operator, the operator is called as in an eager program. Dynamo then takes
the Python that the dispatcher calls for the user's, and would compile the inside of a kernel: of one call a hundred
frames. How a frame is marked is no public interface; where a version of torch has none, the answers are the same and
the first call takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["untraced"]


def untraced(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Answer a kernel that Dynamo leaves alone, and all that it calls, where it is called by the interpreter."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(kernel.__code__, frames._FrameExecStrategy(skip, skip))
    return kernel
