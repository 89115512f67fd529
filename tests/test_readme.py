# SPDX-License-Identifier: Apache-2.0
"""The README against what it shows: its examples are tested files, its table is the ABI's, its commands exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import pybaracuda
from pybaracuda import _abi
from tools.abi.operator_tables import readme_table, whole_table
from tools.abi.spec import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = "tools|tests|docs|verify|benchmarks|examples"
EXAMPLES = {"python": "tests/examples/roi_gradient.py", "c": "tests/native/example.c"}


def marked_part(path: str) -> str:
    """The lines between the example markers of a file."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines(keepends=True)
    begin, end = ([mark in line for line in lines].index(True) for mark in ("[example-begin]", "[example-end]"))
    return "".join(lines[begin + 1 : end])


@pytest.mark.parametrize("language", list(EXAMPLES))
def test_example_is_the_tested_file(language: str) -> None:
    path = EXAMPLES[language]
    shown = re.search(rf"<!-- {re.escape(path)} -->\n```{language}\n(.*?)```\n", README, re.DOTALL)
    assert shown is not None, f"the README has no {language} block under a comment that names {path}"
    assert shown[1] == marked_part(path)


def test_python_example_runs() -> None:
    # The package under test, be it the source tree's or an installed one.
    folders = [str(Path(pybaracuda.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, str(ROOT / EXAMPLES["python"])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
        check=True,
    )
    wanted = re.search(r"# (\(.*?\) [0-9.]+): ", marked_part(EXAMPLES["python"]))
    assert wanted is not None
    assert run.stdout == wanted[1] + "\n"


def table_of(name: str) -> str:
    """What stands between the markers of a page."""
    text = (ROOT / name).read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- operators-begin -->\n(.*?)<!-- operators-end -->", text, re.DOTALL)
    return str(shown)


def test_readme_names_every_family() -> None:
    shown = table_of("README.md")
    assert shown == readme_table(OPERATORS)
    rows = shown.splitlines()[2:]
    families = [text for row in rows for text in row.split("|")[1].split(";")]
    assert len(families) == len({operator.family for operator in OPERATORS})
    assert sum(int(row.split("|")[2]) for row in rows) == sum(
        name.endswith(("_backward", "_bw")) for name in _abi.OPERATORS
    )
    for name in _abi.OPERATORS:
        if not name.endswith(("_backward", "_bw")):
            written = [text for text in families if f"`{name}`" in text or _begins(text, name)]
            assert written, name


def _begins(text: str, name: str) -> bool:
    """Whether a family's text names an operator by the family's prefix and the rest of its name."""
    found = re.match(r" `(\w+_)` ([\w, ]+)", text)
    return found is not None and name.removeprefix(found[1]) in found[2].rstrip(", ").split(", ")


def test_operator_table_is_the_abi() -> None:
    shown = table_of("docs/operators.md")
    assert shown == whole_table(OPERATORS)
    rows = [line.split("|") for line in shown.splitlines()[2:]]
    for operator in _abi.OPERATORS.values():
        (dtypes,) = (row[2] for row in rows if f"`{operator.name}`" in row[1])
        used = {token for variant in operator.variants.values() for token in variant.types.values()}
        # Coordinates follow from the elements; the sentence under the table says how.
        assert set(re.findall(r"[a-z]+\d+", dtypes)) == used


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`?((?:tools|tests|docs|verify|benchmarks|examples)/[\w./-]+)", README)))
)
def test_named_file_exists(path: str) -> None:
    assert (ROOT / path.rstrip(".")).exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python3 (tools/\w+\.py)", README))))
def test_old_python_reaches_the_sentence_that_refuses_it(command: str) -> None:
    # The command imports the package `tools`, whose first statement checks the version.
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in (command, "tools/__init__.py")]
    parsed = [ast.parse(text, feature_version=(3, 6)) for text in texts]
    assert any(isinstance(node, ast.ImportFrom) and node.module == "tools" for node in parsed[0].body)
    assert any(isinstance(node, ast.If) and "version_info" in ast.dump(node.test) for node in parsed[1].body)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"pybaracuda\.(\w+)\(", README))))
def test_named_function_exists(name: str) -> None:
    assert callable(getattr(pybaracuda, name))


def test_the_first_page_stays_short() -> None:
    """What is longer has a page in docs/ or benchmarks/."""
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_every_page_is_named(page: str) -> None:
    assert f"docs/{page}" in README


def test_picture_is_as_its_command_draws_it() -> None:
    (width, path) = re.findall(r"tools/demo\.py .*--width (\d+) --output (\S+)`", README)[0]
    assert f"]({path})" in README
    with Image.open(ROOT / path) as picture:
        assert picture.width == int(width)
    # Everybody who clones the repository loads it.
    assert (ROOT / path).stat().st_size < 256 * 1024
