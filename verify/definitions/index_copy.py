# SPDX-License-Identifier: Apache-2.0
"""Copies of rows by an index, row by row; nothing is rounded.

Source: torch.index_copy, which leaves open on CUDA which of several rows of one index stays. A tensor here is
[outer, rows, inner].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dtypes import Array


def index_copy(input: Any, index: Any, source: Any) -> Array:
    """The input, in which each row of the source stands where its index says: the last of several stays."""
    rows, named = np.array(source), np.asarray(index)
    output = np.array(input)
    for i, place in enumerate(named.tolist()):
        if 0 <= place < output.shape[1]:
            output[:, place] = rows[:, i]
    return output
