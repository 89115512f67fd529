# SPDX-License-Identifier: Apache-2.0
"""Counts of elements in bins of one width, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Scalar, Tensor

ORDER = 140
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="histc",
        family="histc",
        summary=(
            "How many elements are in each of bins of one width from min to max: x in [min, max] in bin "
            "trunc((x - min) * bins / (max - min)), each step rounded to the dtype that is computed in (f32, of f64 "
            "f64), max itself in the last. Where min = max their place is taken by the least and the largest "
            "element, and where these are equal, too, or there are none, by these, or min and max, less 1 and plus 1."
        ),
        parameters=(
            Scalar("num_elements", "i64", "elements", low=0),
            Scalar("bins", "i64", "bins", low=0),
            Scalar(
                "min",
                "f64",
                "where the first bin begins, rounded to the dtype that is computed in; finite",
                finite=True,
            ),
            Scalar("max", "f64", "where the last bin ends, at least min; finite", finite=True),
            Tensor("input", "input", "T", ("num_elements",), "elements in any order"),
            Tensor("output", "output", "T", ("bins",), "counts, each rounded once"),
        ),
        variants=FLOATS,
        empty="No elements: all counts are 0. No bins: success, nothing to write.",
        bad_data=(
            "Elements outside of [min, max] and NaNs are not counted. Where min = max and an element is NaN or "
            "infinite, all counts are 0. A range so large that (max - min) * bins is infinite is status 2, and where "
            "it is that of the elements all counts are 0. One so narrow that max - min is 0 has all elements in bin 0."
        ),
        workspace=(
            "On CUDA 8 bytes for each bin, and 64. On the CPU 8 bytes for each bin of at most 32 parts of the "
            "elements, which have 32768 and as many as there are bins at the least, and 1104."
        ),
        determinism=BIT_STABLE + "Elements are counted in integers, which are rounded at the end.",
        source="torch.histc (2.13) on CUDA.",
    ),
)
