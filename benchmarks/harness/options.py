# SPDX-License-Identifier: Apache-2.0
"""The options that several benchmarks' commands have; those of one command alone are in its own main.py."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from .results import Recorded

_RESULT = ".json"


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number, at least 1, got {text!r}")
    return int(text)


def new_file(text: str) -> Path:
    """A file to write, whose folder exists: what cannot be written is known before anything is measured."""
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist")
    return path


def _file_or_folder(text: str) -> Path:
    return new_file(text) if Path(text).suffix == _RESULT else Path(text)


def _earlier_file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add --rows: a compiled regular expression, or None."""
    parser.add_argument("--rows", type=_pattern, metavar="REGEX", help="only rows whose name matches somewhere")


def add_list(parser: argparse.ArgumentParser) -> None:
    """Add --list."""
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")


def add_repeat(parser: argparse.ArgumentParser, gpu: int, cpu: int) -> None:
    """Add --repeat: None where it is for the command to take one of these defaults."""
    parser.add_argument("--repeat", type=_count, help=f"repetitions (default: {gpu}; CPU: {cpu})")


def add_limit(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add --limit, with a default."""
    parser.add_argument(
        "--limit", type=float, default=seconds, metavar="SECONDS", help=f"stop after so long (default: {seconds:.0f})"
    )


def add_output(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option of this name that says where results go; see `result_file`."""
    parser.add_argument(
        name,
        type=_file_or_folder,
        metavar=f"FILE{_RESULT}",
        help="write the results, after every row; a folder gets a file that is named after device and date",
    )


def add_update(parser: argparse.ArgumentParser, kept: str) -> None:
    """Add --update: a file that exists, or None."""
    parser.add_argument(
        "--update",
        type=_earlier_file,
        metavar=f"FILE{_RESULT}",
        help=f"write the results into a file of an earlier run on the same machine, which keeps {kept}",
    )


def result_file(output: Path | None, result: Recorded) -> Path | None:
    """The file that results go into; a folder that is not there yet is made."""
    if output is None or output.suffix == _RESULT:
        return output
    output.mkdir(parents=True, exist_ok=True)
    return output / result.file_name
