# SPDX-License-Identifier: Apache-2.0
"""Segments: their reductions and gradients, and bags of embeddings, which are segments of rows of a table."""

from __future__ import annotations

from tools.abi.families.segment.bags import BAGS
from tools.abi.families.segment.reductions import REDUCTIONS
from tools.abi.model import Operator

ORDER = 50
OPERATORS: tuple[Operator, ...] = (*REDUCTIONS, *BAGS)
