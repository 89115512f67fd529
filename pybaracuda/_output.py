# SPDX-License-Identifier: Apache-2.0
"""How a command ends whose output nobody reads to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

__all__ = ["run_to_reader"]

# What a shell says of a program that SIGPIPE ended.
_READER_WENT_AWAY = 128 + 13


def run_to_reader(command: Callable[[], int]) -> int:
    """Run one command whose reader may go away before its end, as `head` does: then it ends without a word.

    Answers the process's exit status.
    """
    try:
        try:
            return command()
        finally:
            # What is still held back goes out here, and not when the interpreter ends.
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter writes once more what could not be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_WENT_AWAY
