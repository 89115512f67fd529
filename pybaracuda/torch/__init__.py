# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs on this library's kernels: `install` and what belongs to it. Importing this changes nothing."""

from __future__ import annotations

from . import _images, _rows  # noqa: F401  (they enter their routes)
from ._bad_indices import check_indices
from ._compile import decompositions
from ._installation import Installation, install, uninstall
from ._report import Report, operators, report

__all__ = ["Installation", "Report", "check_indices", "decompositions", "install", "operators", "report", "uninstall"]
