# SPDX-License-Identifier: Apache-2.0
"""What the set-up's steps share: where things are built, logs, running a program, failures that a user can act on."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_LOG_TAIL_LINES = 25


class SetupError(Exception):
    """A failure that the user can act on; its text is the whole of what is printed."""


def say(text: str) -> None:
    """Print one progress line at once, also into a pipe."""
    print(text, flush=True)


def build_root() -> Path:
    """Where everything that is built goes: `build` in the repository, or BARACUDA_BUILD_DIR."""
    return (ROOT / os.environ.get("BARACUDA_BUILD_DIR", "build")).resolve()


def log_path(name: str) -> Path:
    """The log file of one step; the folder is made on the way."""
    folder = build_root() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (name + ".log")


def job_count() -> int:
    """Parallel jobs for compilers: the CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def shown(path: Path) -> str:
    """A path as it is shown to the user: relative to where they stand, when it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def run_logged(command: Sequence[str], log: Path, failure: str, environ: Mapping[str, str], cwd: Path = ROOT) -> None:
    """Run `command` with its output in `log`; a failure is a SetupError: the log's last lines, `failure` and the path.

    On a terminal the newest line of output is shown in place while the command runs.
    """
    live = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    with log.open("w", encoding="utf-8") as sink:
        sink.write("$ " + shlex.join(command) + "\n")
        sink.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise SetupError(f"{failure}: cannot start {command[0]}: {error.strerror}.") from None
        assert process.stdout is not None
        for line in process.stdout:
            sink.write(line)
            if live and line.strip():
                print("\r\033[K" + line.strip()[:width], end="", flush=True)
        code = process.wait()
    if live:
        print("\r\033[K", end="", flush=True)
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        raise SetupError(
            "\n".join([*("  | " + line for line in tail), f"{failure} (exit status {code}; all of it: {log})."])
        )


def fail(error: SetupError) -> int:
    """Print an expected failure as it is, without a traceback; returns the exit status."""
    *details, sentence = str(error).splitlines()
    print("\n".join([*details, f"error: {sentence}"]), file=sys.stderr, flush=True)
    return 1


def guarded(main: Callable[[list[str]], int]) -> int:
    """Run a tool's main with the command line; expected failures become one message and exit status 1."""
    try:
        return main(sys.argv[1:])
    except SetupError as error:
        return fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return 130
