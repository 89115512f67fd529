# SPDX-License-Identifier: Apache-2.0
"""The progress bar; on anything but a terminal, one plain line when a stage begins."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Counts steps of the whole run; `stage` names what is being done."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            layout = "{desc:<34} {bar} {n_fmt}/{total_fmt}  {elapsed}"
            self._bar = tqdm(total=total, bar_format=layout, dynamic_ncols=True, leave=False)

    def stage(self, name: str) -> None:
        """Say what is being done from here on."""
        if self._bar is not None:
            self._bar.set_description_str(name)
        elif not self._quiet:
            print(f"{name} ...", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print lines of output, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def expect(self, steps: int) -> None:
        """Add steps that were not known at the start."""
        if self._bar is not None:
            self._bar.total += steps
            self._bar.refresh()

    def step(self) -> None:
        """Count one finished step."""
        if self._bar is not None:
            self._bar.update(1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
