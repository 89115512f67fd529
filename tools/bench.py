# SPDX-License-Identifier: Apache-2.0
"""Sets everything up and runs the benchmark, which is benchmarks/run.py; its options pass through.

Two options are this tool's own: --with-peers also installs torch and JAX from PyPI to measure beside, and --render
writes the tables and the picture of the committed results into this source tree.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools import commands, environment


def main(arguments: list[str]) -> int:
    """Set up, then become the benchmark, so that its exit status and signals are this command's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--with-peers", action="store_true")
    parser.add_argument("--render", action="store_true")
    options, rest = parser.parse_known_args(arguments)
    sets = ("bench", *(["peers"] if options.with_peers else []))
    private = environment.set_up(environment.Options(sets=sets, native_tests=False))
    if options.render:
        rest += ["--render", str(commands.ROOT)]
    program = str(commands.ROOT / "benchmarks" / "run.py")
    os.execve(private.python, [private.python, program, *rest], private.environ())


if __name__ == "__main__":
    sys.exit(commands.guarded(main))
