# SPDX-License-Identifier: Apache-2.0
"""The process that starts the workers, watches them, and says what was found. It loads no library itself."""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tools.fuzzing import abi, call, draw
from tools.fuzzing.worker import STATE

STATUS_WORDS = ("ok", "misaligned", "invalid", "unsupported", "workspace too small", "internal")
# How often a worker's end and its progress are looked at.
STEP_SECONDS = 0.05
PROGRESS_SECONDS = 10.0


class Worker:
    """One process that makes every `jobs`-th call, and what it has said."""

    def __init__(self, options: argparse.Namespace, program: Path, first: int, calls: int | None, folder: str) -> None:
        self.options, self.first = options, first
        file = Path(folder) / f"state-{first}"
        file.write_bytes(STATE.pack(-1, 0, 0, 0))
        with file.open("r+b") as shared:
            self._state = mmap.mmap(shared.fileno(), STATE.size)
        command = [sys.executable, str(program), "--worker", str(file), "--seed", str(options.seed)]
        command += ["--first", str(first), "--jobs", str(options.jobs), "--backend", options.backend]
        command += ["--only", options.only, "--against", options.against]
        command += ["--lib", str(options.lib)] if options.lib else []
        command += ["--calls", str(calls)] if calls is not None else []
        command += ["--seconds", str(options.seconds)] if options.seconds is not None else []
        command += ["--reproduce", options.reproduce] if options.reproduce else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self.words: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, True), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, False), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._at, self._since = -1, time.monotonic()

    def _read(self, stream: Any, is_report: bool) -> None:
        for line in stream:
            if is_report:
                self.lines.append(json.loads(line))
            else:
                self.words = [*self.words[-60:], line.rstrip()]

    @property
    def state(self) -> tuple[int, ...]:
        """The call it is at, calls made, C functions called, results compared."""
        return STATE.unpack_from(self._state, 0)

    def hangs(self) -> bool:
        at = self.state[0]
        if at != self._at or at < 0 or self._is_stopped():
            self._at, self._since = at, time.monotonic()
        return bool(time.monotonic() - self._since > self.options.hang)

    def _is_stopped(self) -> bool:
        """Whether somebody stopped the process for a while, which is no hang."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def ended(self) -> bool:
        if self.process.poll() is None:
            return False
        for reader in self._readers:
            reader.join()
        return True

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class Run:
    """All workers of one run, and the sum of what they did."""

    def __init__(self, options: argparse.Namespace, program: Path) -> None:
        self.options, self.program = options, program
        self.statuses: Counter[int] = Counter()
        self.of_symbol: Counter[str] = Counter()
        self.calls = self.entered = self.compared = self.findings = 0
        self.began = time.monotonic()
        self._taken: dict[int, int] = {}

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def finding(self, number: int, what: list[str], drawn: str) -> None:
        self.findings += 1
        print(f"FOUND {draw.symbol_of(number).name}, --reproduce {self.options.seed}:{number}")
        for each in what:
            print(f"  {each}")
        print(f"  {drawn}", flush=True)

    def drawn(self, number: int) -> str:
        streams = 3 if self.options.backend == "cuda" else 0
        return call.to_json(draw.call_of(self.options.seed, number, streams).call)

    def take(self, worker: Worker) -> None:
        """What a worker has said since it was last asked."""
        while self._taken.get(id(worker), 0) < len(worker.lines):
            line = worker.lines[self._taken.get(id(worker), 0)]
            self._taken[id(worker)] = self._taken.get(id(worker), 0) + 1
            if "counts" in line:
                self.statuses.update({int(status): count for status, count in line["counts"]["statuses"].items()})
                self.of_symbol.update(line["counts"]["symbols"])
            elif line["findings"]:
                self.finding(line["number"], line["findings"], line["call"])
            else:  # of --reproduce
                print(f"{draw.symbol_of(line['number']).name} answers {line['status']}, as it should")
                print(f"  {line['call']}", flush=True)

    def crashed(self, worker: Worker, how: str) -> int:
        """Report a worker that is gone; answers the number of the call that took it along."""
        number = worker.state[0]
        said = "\n".join(worker.words[-40:])
        if number < 0:
            self.findings += 1
            print(f"FOUND no call: a worker {how} outside of a call\n{said}", flush=True)
        else:
            self.finding(number, [f"the process {how}", *worker.words[-40:]], self.drawn(number))
        return number

    def add(self, worker: Worker) -> None:
        _, made, entered, compared = worker.state
        self.calls, self.entered, self.compared = self.calls + made, self.entered + entered, self.compared + compared

    def main(self) -> None:
        """Start the workers, start them again behind a call that killed one, until they are done."""
        options, jobs = self.options, self.options.jobs
        told = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            # Each makes its share; the last ones may have one call less.
            share = None if options.calls is None else -(-options.calls // jobs)
            workers = [Worker(options, self.program, options.first + job, share, folder) for job in range(jobs)]
            try:
                while workers:
                    time.sleep(STEP_SECONDS)
                    for worker in list(workers):
                        self.take(worker)
                        if worker.hangs():
                            worker.stop()
                            how = f"did not come back from it in {options.hang:g} s"
                        elif not worker.ended():
                            continue
                        else:
                            code = worker.process.returncode
                            how = _how(code)
                        self.take(worker)
                        workers.remove(worker)
                        self.add(worker)
                        if how and self.findings < options.findings:
                            number = self.crashed(worker, how)
                            again = self._rest(worker, number, share)
                            if again is not None:
                                workers.append(Worker(options, self.program, *again, folder))
                    if self.findings >= options.findings:
                        self.say(f"{self.findings} findings: that is enough")
                        break
                    if time.monotonic() - told > PROGRESS_SECONDS:
                        told = time.monotonic()
                        made = self.calls + sum(worker.state[1] for worker in workers)
                        self.say(
                            f"{made:,} calls, {made / (told - self.began):,.0f} a second, {self.findings} findings"
                        )
            finally:
                for worker in workers:
                    self.add(worker)
                    worker.stop()

    def _rest(self, worker: Worker, number: int, share: int | None) -> tuple[int, int | None] | None:
        """Where a worker goes on behind a call that killed it, and for how many calls; None if it is at its end."""
        options = self.options
        if number < 0 or options.reproduce:
            return None
        first = number + options.jobs
        if share is not None:
            end = options.first + (share - 1) * options.jobs + (first - options.first) % options.jobs
            return (first, (end - first) // options.jobs + 1) if first <= end else None
        options.seconds = max(options.seconds - (time.monotonic() - self.began), 1.0)
        return first, None


def _how(code: int) -> str:
    if code == 0:
        return ""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def main(options: argparse.Namespace, program: Path) -> int:
    names = [symbol.name for symbol in abi.symbols() if re.search(options.only, symbol.name)]
    if not names:
        print(f"no symbol holds {options.only!r}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}, {len(names)} symbols, {options.lib or 'the installed library'}, "
          f"{options.backend if not options.lib else 'its backend'}, {options.jobs} at once of {os.cpu_count()} CPUs",
          flush=True)  # fmt: skip
    run = Run(options, program)
    run.main()
    seconds = time.monotonic() - run.began
    statuses = ", ".join(f"{run.statuses[status]:,} {STATUS_WORDS[status]}" for status in sorted(run.statuses))
    fewest = min(names, key=lambda name: run.of_symbol[name])
    print(f"{run.calls:,} calls in {seconds:.0f} s, {run.calls / seconds:,.0f} a second; {run.entered:,} C functions "
          f"called, {run.compared:,} results compared")  # fmt: skip
    if run.of_symbol:
        print(f"by status: {statuses}; fewest calls of a symbol: {run.of_symbol[fewest]:,} ({fewest})")
    print(f"{run.findings} findings, seed {options.seed}", flush=True)
    return 1 if run.findings else 0
