# SPDX-License-Identifier: Apache-2.0
"""Operations on rows that belong to segments: the names that users and the package take from here; no code."""

from __future__ import annotations

from .csr import gather_csr, segment_csr, segment_csr_backward
from .gradients import (
    segment_gather,
    segment_logsumexp_backward,
    segment_max_backward,
    segment_mean_backward,
    segment_min_backward,
    segment_prod_backward,
    segment_softmax_backward,
    segment_sum_backward,
    unsorted_segment_max_backward,
)
from .plans import (
    SegmentDescriptor,
    SegmentPlan,
    SegmentSelectionDescriptor,
    SegmentSelectionPlan,
    UnsortedSegmentMaxBackwardDescriptor,
    UnsortedSegmentMaxBackwardPlan,
    UnsortedSegmentMaxDescriptor,
    UnsortedSegmentMaxPlan,
)
from .reductions import (
    segment_logsumexp,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_softmax,
    segment_sum,
    unsorted_segment_max,
)

__all__ = [
    "SegmentDescriptor",
    "SegmentPlan",
    "SegmentSelectionDescriptor",
    "SegmentSelectionPlan",
    "UnsortedSegmentMaxBackwardDescriptor",
    "UnsortedSegmentMaxBackwardPlan",
    "UnsortedSegmentMaxDescriptor",
    "UnsortedSegmentMaxPlan",
    "gather_csr",
    "segment_csr",
    "segment_csr_backward",
    "segment_gather",
    "segment_logsumexp",
    "segment_logsumexp_backward",
    "segment_max",
    "segment_max_backward",
    "segment_mean",
    "segment_mean_backward",
    "segment_min",
    "segment_min_backward",
    "segment_prod",
    "segment_prod_backward",
    "segment_softmax",
    "segment_softmax_backward",
    "segment_sum",
    "segment_sum_backward",
    "unsorted_segment_max",
    "unsorted_segment_max_backward",
]
