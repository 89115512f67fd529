# SPDX-License-Identifier: Apache-2.0
"""The problems of histograms."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import any_bits, special, subnormal, tied, wide
from ..problem import TENTH, Family, Problem


def _values(numel: int, bins: int, low: float = 0.0, high: float = 0.0) -> Values:
    return {"num_elements": numel, "bins": bins, "min": low, "max": high}


FAMILY = Family({"histc": [
    Problem("typical", "a hundred bins of the data's range", _values(3000, 100)),
    Problem("given-range", "a range within the data", _values(3001, 64, -0.5, 0.75)),
    Problem("one-bin", "all in one", _values(513, 1, -2.0, 2.0)),
    Problem("tenths", "a range of which bins are no binary fractions", _values(4099, 7, -TENTH, 0.7)),
    Problem("constant", "one element, around which the range is", _values(1, 5)),
    Problem("none", "no elements", _values(0, 9)),
    Problem("narrow", "a range of one step of the dtype", _values(900, 300, 0.5, 0.5 + 2**-12)),
    Problem("more-copies", "bins whose counts fit a block once", _values(5000, 12288, -1.0, 1.0)),
    Problem("many-bins", "bins whose counts fit no block", _values(5003, 12289, -1.0, 1.0)),
    Problem("special", "NaNs and infinities, of which none is counted", _values(4001, 33, -1.0, 1.0),
            {"input": special}),
    Problem("not-finite", "infinities and NaNs in the data's range", _values(700, 10), {"input": special}),
    Problem("any-bits", "the largest numbers, too", _values(2000, 21, -4.0, 4.0), {"input": any_bits}),
    Problem("ties", "few distinct values, zeros of both signs", _values(900, 4), {"input": tied}),
    Problem("subnormal", "subnormal data alone", _values(800, 16), {"input": subnormal}),
    Problem("wide", "magnitudes of many scales", _values(2001, 50), {"input": wide}),
    Problem("parallel", "enough work for several threads", _values(200_001, 256)),
]})  # fmt: skip
