# SPDX-License-Identifier: Apache-2.0
"""Every family of operators has all of its places, and its record says something of every operator and function.

What fails here names the file to add. The places are those of CONTRIBUTING.md.
"""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from operators import OF_CALL, RECORDS
from operators.record import Record

import pybaracuda
from pybaracuda import _abi
from tools.abi import families
from tools.abi.spec import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = [module.name for module in pkgutil.iter_modules(families.__path__)]
PLACES = {
    "native/ops/{}/problem.h": "checks of its problem",
    "pybaracuda/{}.py": "Python module",
    "verify/definitions/{}.py": "float64 definition",
    "pybaracuda/_check/problems/{}.py": "problems whose bits are committed",
    "tests/operators/{}.py": "record",
    "tests/test_{}.py": "test of its own",
    "benchmarks/operators/{}.py": "rows of the benchmark",
}
RECORD = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.families[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", PLACES)
def test_a_family_has_its_places(family: str, place: str) -> None:
    """What a file would hold may be a folder."""
    path = place.format(family)
    found = (ROOT / path).is_file() or (ROOT / path.removesuffix(".py") / "__init__.py").is_file()
    assert found, f"{family} has no {PLACES[place]}: add {path}"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_of_differences_names_it(family: str) -> None:
    headings = re.findall("^## (.*)$", (ROOT / "docs" / "differences.md").read_text("utf-8"), re.M)
    assert any(family in heading.lower() for heading in headings), f"add a section on {family} to docs/differences.md"


def test_every_folder_of_kernels_is_in_the_abi_table() -> None:
    """The build takes every folder."""
    assert {path.name for path in (ROOT / "native" / "ops").iterdir()} == set(FAMILIES)


def test_operators_stand_in_the_folder_that_their_file_is_called_after() -> None:
    assert {operator.folder for operator in OPERATORS} == set(FAMILIES)


@RECORD
def test_a_record_speaks_of_every_operator(record: Record) -> None:
    names = {name for name, operator in _abi.OPERATORS.items() if operator.family in record.families}
    assert set(record.baselines) == names
    assert set(record.checks) == names
    plans = set(record.plans("f32"))
    assert plans <= names if record.has_generic_plans else plans == names
    assert record.not_in_torch | record.not_in_jax <= names


@RECORD
def test_a_record_calls_every_function(record: Record) -> None:
    calls = record.calls(np.float32)
    assert {call.function for call in calls.values()} == {getattr(pybaracuda, name) for name in record.functions}
    for name, call in calls.items():
        assert OF_CALL[name] is record
        keywords = record.functions[call.function.__name__].split()
        assert {*(array.partition("[")[0] for array in call.arrays), *call.options} <= set(keywords), name
    for plan in record.plans("f32").values():
        assert plan.function in calls
    tables = (record.floats_only, record.any_rank, record.narrow, record.integers)
    named = {name for table in tables for name in table} | {bad[0] for bad in record.bad_options}
    assert named <= set(calls), "a call that the record does not have"
