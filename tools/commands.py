# SPDX-License-Identifier: Apache-2.0
"""What the set-up's steps share: where things are built, logs, running a program, failures that a user can act on."""

import os
import selectors
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent

_LOG_TAIL_LINES = 25
# A step that ends within this many seconds needs no progress; later there is a line this often where the output is no
# terminal, where nothing can be shown in place.
_QUIET_SECONDS = 3.0
_LINE_SECONDS = 10.0


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


class _Progress:
    """What a running step is doing, for the user: in place on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._start = time.monotonic()
        self._next = self._start + _QUIET_SECONDS

    def show(self, what: str) -> None:
        """Tell what the step does now, if it is time to."""
        now = time.monotonic()
        elapsed = f"{now - self._start:.0f} s"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + f"{elapsed:>5}  {what}"[:width], end="", flush=True)
        elif now >= self._next:
            say(f"{elapsed:>7}  {what}")
            self._next = now + _LINE_SECONDS

    def end(self) -> None:
        """Leave the terminal's line empty."""
        if self._live:
            print("\r\033[K", end="", flush=True)


def _lines_as_they_come(stream: IO[bytes]) -> Iterator[str | None]:
    """The lines of a program's output, and None whenever a second passes without one."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(timeout=1.0):
                yield None
                continue
            chunk = os.read(stream.fileno(), 1 << 16)
            *lines, rest = (rest + chunk).split(b"\n")
            if not chunk and rest:
                lines.append(rest)
            for line in lines:
                yield line.decode(errors="replace")
            if not chunk:
                return


def run_logged(
    command: Sequence[str],
    log: Path,
    failure: str,
    environ: Mapping[str, str],
    cwd: Path = ROOT,
    describe: Callable[[str], str] = str.strip,
    silent: bool = False,
) -> None:
    """Run `command` with its output in `log`; a failure is a SetupError: the log's last lines, `failure` and the path.

    While the command runs, its newest line of output is shown, as `describe` words it, with the seconds that passed;
    not if it is to be `silent`, because it runs beside another command that is shown.
    """
    progress = None if silent else _Progress()
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
            )
        except OSError as error:
            raise SetupError(f"{failure}: cannot start {command[0]}: {error.strerror}.") from None
        assert process.stdout is not None
        newest = Path(command[0]).name
        for line in _lines_as_they_come(process.stdout):
            if line is not None:
                sink.write(line + "\n")
                sink.flush()
                newest = describe(line) or newest
            if progress is not None:
                progress.show(newest)
        code = process.wait()
    if progress is not None:
        progress.end()
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
