# SPDX-License-Identifier: Apache-2.0
"""`python -m pybaracuda.torch SCRIPT`: an unchanged program and its child processes on this library's kernels."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from .._output import run_to_reader
from ._start import VARIABLE, Wish, begin

__all__ = ["main"]


def _list() -> int:
    from ._report import table

    print(table())
    return 0


class _List(argparse.Action):
    """Prints the operators as a table in Markdown, and ends."""

    def __call__(self, *_: object) -> None:
        raise SystemExit(run_to_reader(_list))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pybaracuda.torch",
        description="Run a PyTorch program with pybaracuda's kernels in place of PyTorch's.",
        epilog=f"Child processes do the same: they find the options in {VARIABLE}.",
    )
    parser.add_argument("--deterministic", action="store_true", help="ask PyTorch and its libraries for repeatability")
    parser.add_argument("--seed", type=int, help="seed PyTorch's, NumPy's and Python's generators")
    parser.add_argument("--ops", default="", help="take these operators over, separated by commas (all)")
    parser.add_argument("--exclude", default="", help="leave these operators to PyTorch, separated by commas")
    parser.add_argument("--report", action="store_true", help="print at the end what became of the operators' calls")
    parser.add_argument("--list", action=_List, nargs=0, help="print the operators and which calls are ours, and end")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="the program's file, or with -m its module")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names; its exit code is this process's."""
    options = _parser().parse_args(arguments)
    wish = Wish(options.ops, options.exclude, options.deterministic, options.seed, options.report)
    os.environ[VARIABLE] = wish.text()
    try:
        begin(wish)
    except (ImportError, RuntimeError, ValueError) as error:
        raise SystemExit(f"pybaracuda.torch: nothing is installed: {error}") from error
    if options.module:
        sys.argv = [options.script, *options.arguments]
        sys.path[0] = os.getcwd()
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [options.script, *options.arguments]
        sys.path[0] = str(Path(options.script).resolve().parent)
        runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
