# SPDX-License-Identifier: Apache-2.0
"""Boxes that no detector makes, for tests of every operator that takes boxes; nothing is checked here."""

from __future__ import annotations

from hypothesis import strategies as st

NAN, INF = float("nan"), float("inf")

# Batch indices for two images: none of them, and what becomes one of them when it is cut to a whole number.
BAD_BATCH = [-1.0, 2.0, 2.0**31, -(2.0**31), 2.0**63, 1e30, -1e30, INF, -INF, NAN, -0.5, 1.999, -0.0]

_COORDINATES = st.one_of(
    st.floats(-12, 24, width=32),
    st.sampled_from([-1.0, 0.0, -0.0, 0.5, 7.0, 8.0, NAN, INF, -INF, 1e30, -1e30, 3.0e38, 1e-40]),
)
# Rows for up to three images.
ANY_BOXES = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 2.0, 3.0, NAN]), *[_COORDINATES] * 4),
    max_size=6,
)
