# SPDX-License-Identifier: Apache-2.0
"""Which cases of a test with many a run takes where time is short, and the pytest plugin that leaves out the others.

BARACUDA_TEST_SHARE=3 takes one in three of the cases of every test that has more than four, others in every run;
BARACUDA_BITS_SHARE=3 every third of the committed bits' problems, from another one on in every run and for every
configuration of the library. Without them everything is run.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

VARIABLE, BITS_VARIABLE = "BARACUDA_TEST_SHARE", "BARACUDA_BITS_SHARE"
# Of a test with no more cases all are run, since they may stand for different things.
FEW = 4


def share(variable: str = VARIABLE) -> int:
    """One in how many cases is run."""
    given = os.environ.get(variable, "1")
    if not given.isdecimal() or int(given) < 1:
        raise pytest.UsageError(f"{variable} is {given!r}; wanted a whole number from 1 on")
    return int(given)


def part_of_bits(seed: int) -> tuple[int, int]:
    """Which problem of the committed bits is the first that is run, and one in how many is."""
    one_in = share(BITS_VARIABLE)
    return seed % one_in, one_in


def chosen(names: Sequence[str], one_in: int, seed: str) -> set[int]:
    """The positions of the cases that are run, of tests' names with their parameters in brackets."""
    cases: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        cases[name.partition("[")[0]].append(position)
    taken: set[int] = set()
    for test, found in cases.items():
        count = max(min(FEW, len(found)), -(-len(found) // one_in))
        # The same in every process of a run: the cases are handed out by their positions.
        taken |= set(random.Random(f"{seed} {test}").sample(found, count))
    return taken


class Share:
    """Leaves the other cases out, and has pytest count them as deselected."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def pytest_report_header(self) -> str:
        shares = {VARIABLE: f"the cases of tests with more than {FEW}", BITS_VARIABLE: "the committed bits' problems"}
        said = [f"one in {share(each)} of {what} ({each})" for each, what in shares.items() if share(each) > 1]
        return "; ".join(said)

    # What -k and -m leave is shared.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if share() == 1:
            return
        shared = [item for item in items if item.get_closest_marker("every_case") is None]
        taken = chosen([item.nodeid for item in shared], share(), self._seed)
        left_out = [item for at, item in enumerate(shared) if at not in taken]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
