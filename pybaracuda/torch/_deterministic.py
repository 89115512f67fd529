# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own switches for repeatable programs, set together and set back."""

from __future__ import annotations

import os

import torch

__all__ = ["Deterministic"]

# The larger of the two settings that PyTorch accepts.
_CUBLAS = ":4096:8"


class Deterministic:
    """The switches, from `begin` to `end`."""

    def begin(self) -> None:
        """Set them; cuBLAS reads its variable when CUDA is first used."""
        self._enabled = torch.are_deterministic_algorithms_enabled()
        self._warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        self._benchmark = torch.backends.cudnn.benchmark
        self._set_cublas = "CUBLAS_WORKSPACE_CONFIG" not in os.environ
        if self._set_cublas:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = _CUBLAS
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)

    def end(self) -> None:
        """Set them back."""
        if self._set_cublas:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        torch.backends.cudnn.benchmark = self._benchmark
        torch.use_deterministic_algorithms(self._enabled, warn_only=self._warn_only)
