# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a check, child.py each, and reads what they find; nothing is compared here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .runs import Configuration
from .vectors import Hashes, parsed


class ChildError(RuntimeError):
    """A process that did not come to its end; the text is what it said last."""


def _ending(returncode: int, last_case: str, said: str) -> str:
    after = f"after {last_case}" if last_case else "before the first case"
    if returncode < 0:
        return f"ended by {signal.Signals(-returncode).name} {after}"
    lines = said.strip().splitlines() or [f"exit code {returncode}"]
    return f"{lines[-1]} ({after})"


def found_in_child(
    configuration: Configuration,
    quick: bool = False,
    module: str = "pybaracuda._check.child",
    part: tuple[int, int] = (0, 1),
) -> Iterator[tuple[str, dict[str, str]]]:
    """Run a configuration in a fresh process that imports what this one does; answer (case, hashes) as they come.

    Raises
    ------
    ChildError
        If the process fails.
    """
    # The whole path, and not `-m`: another pybaracuda in the current folder is not the one to check.
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, configuration.backend, "--caller", configuration.caller]
    command += ["--layout", configuration.layout, "--device", str(configuration.device)]
    command += ["--quick"] if quick else []
    command += ["--first", str(part[0]), "--step", str(part[1])]
    if not sys.executable:
        raise ChildError("this program is no Python interpreter that could be started again")
    name = ""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        environment = {**os.environ, **configuration.environment}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    name, hashes = parsed(line)
                    yield name, hashes
                child.wait()
            finally:
                child.kill()
        if child.returncode != 0:
            errors.seek(0)
            raise ChildError(_ending(child.returncode, name, errors.read()))


def run_in_child(
    configuration: Configuration, module: str = "pybaracuda._check.child", part: tuple[int, int] = (0, 1)
) -> Hashes:
    """The cases under a configuration, in a fresh process: all, or from the first of `part` on every so many."""
    return dict(found_in_child(configuration, module=module, part=part))
