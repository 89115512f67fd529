# SPDX-License-Identifier: Apache-2.0
"""Sets everything up and runs the demo, which is examples/photo/run.py; its options pass through."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools import commands, environment


def main(arguments: list[str]) -> int:
    """Set up, then become the demo, so that its exit status and signals are this command's."""
    private = environment.set_up(environment.Options(sets=("demo",), native_tests=False))
    os.execve(
        private.python,
        [private.python, str(commands.ROOT / "examples" / "photo" / "run.py"), *arguments],
        private.environ(),
    )


if __name__ == "__main__":
    sys.exit(commands.guarded(main))
