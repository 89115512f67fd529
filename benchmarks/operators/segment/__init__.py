# SPDX-License-Identifier: Apache-2.0
"""Segment operations in the benchmark: what one is, its data, its peers, and the rows."""

from .rows import CPU, CUDA

ORDER = 40

__all__ = ["CPU", "CUDA", "ORDER"]
