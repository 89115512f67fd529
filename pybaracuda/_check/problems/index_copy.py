# SPDX-License-Identifier: Apache-2.0
"""The problems of copies of rows by an index."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import INT32_MAX, INT32_MIN, Maker, any_bits, plain, subnormal
from ..problem import Family, Problem
from ..splitmix import WORD_BYTES, Array, encoded, integers


def _length(values: Values) -> int:
    found = values["length"]
    assert isinstance(found, int)
    return found


def _index(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 0, _length(values) - 1), token)


def _permuted(seed: int, count: int, token: str, values: Values) -> Array:
    """Every row once, as far as there are rows."""
    drawn = integers(seed, _length(values), 0, INT32_MAX)
    return encoded(np.argsort(drawn, kind="stable")[:count], token)


def _one_row(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(np.full(count, _length(values) // 2), token)


def _few_rows(seed: int, count: int, token: str, values: Values) -> Array:
    """Three rows, in runs and in turn."""
    return encoded(integers(seed, count, 0, 2) * (_length(values) // 3), token)


def _bad(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers on either side of the rows and the extremes of the type, between good ones."""
    length = _length(values)
    bad = [-1, length, INT32_MIN, INT32_MAX] + ([-(2**63), 2**63 - 1, 2**32, 2**32 + 1] if token == "i64" else [])
    drawn = integers(seed, count, 0, length - 1)
    drawn[::3] = np.array(bad)[integers(seed ^ 1, count, 0, len(bad) - 1)][::3]
    return encoded(drawn, token)


def _problem(
    name: str,
    description: str,
    shape: tuple[int, int, int, int],
    index: Maker = _index,
    content: Maker = plain,
) -> Problem:
    outer, length, n, inner = shape
    values: Values = {"outer": outer, "length": length, "n": n, "inner": inner}
    return Problem(name, description, values, {"index": index, "input": content, "source": content})


# From 2,881 rows of source on CUDA has another path.
_PROBLEMS = [
    _problem("typical", "every row at most once", (1, 40, 25, 16), _permuted),
    _problem("several-writers", "most rows have many", (2, 7, 300, 5)),
    _problem("elements", "rows of one", (1, 1000, 700, 1)),
    _problem("axis", "an axis in the middle, odd extents", (5, 9, 14, 33)),
    _problem("one-row", "all name it", (1, 6, 130, 3), _one_row),
    _problem("wide-rows", "one past a piece of a row", (1, 5, 4, 4097)),
    _problem("bad-index", "rows out of range are dropped", (3, 20, 90, 7), _bad),
    _problem("special", "any bits", (2, 12, 10, 13), _index, any_bits),
    _problem("subnormal", "subnormal data alone", (1, 10, 9, 6), _index, subnormal),
    _problem("winners", "one entry more than a block of them", (1, 3100, 3073, 3)),
    _problem("winners-of-elements", "rows of one, half of them named", (1, 9001, 9001, 1)),
    _problem("winners-of-few-rows", "many writers of three rows", (1, 70, 4000, 2), _few_rows),
    _problem("winners-of-bad-index", "rows out of range are dropped", (1, 3000, 4099, 4), _bad),
    _problem("winners-of-many", "rows of many tables, enough work for several threads", (40, 65, 260, 8)),
    _problem("parallel", "enough work for several threads", (1, 500, 700, 128), _index, any_bits),
]  # fmt: skip


def _maker(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    """Words are no numbers."""
    return plain if maker is subnormal and element in WORD_BYTES else maker


FAMILY = Family({"index_copy": _PROBLEMS}, maker=_maker)
