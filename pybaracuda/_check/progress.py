# SPDX-License-Identifier: Apache-2.0
"""How far a check has come: tqdm's bar where it is installed and a person watches, else now and then a plain line."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts steps, from any thread; all of it on stderr, `say` alone on stdout."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._lock = threading.Lock()
        self._said = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="case", dynamic_ncols=True, leave=False)

    def step(self) -> None:
        """Count one more."""
        with self._lock:
            self._done += 1
            if self._bar is not None:
                self._bar.update(1)
            elif time.monotonic() - self._said > _SECONDS_BETWEEN_LINES:
                self._said = time.monotonic()
                print(f"  {self._done} of {self._total} results ...", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print lines above the bar."""
        with self._lock:
            if self._bar is not None:
                self._bar.clear()
            print(text, flush=True)
            if self._bar is not None:
                self._bar.refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
