# SPDX-License-Identifier: Apache-2.0
"""How a process begins that was asked, by the command line or by its parent's environment, to run on our kernels."""

from __future__ import annotations

import atexit
import os
import random
import sys
from typing import NamedTuple

__all__ = ["VARIABLE", "Wish", "autoload", "begin"]

# What a parent process leaves for its children: "1", or the options in the order of `Wish`.
VARIABLE = "PYBARACUDA_TORCH"


class Wish(NamedTuple):
    """What was asked for; `ops` and `exclude` are names with commas between them."""

    ops: str = ""
    exclude: str = ""
    deterministic: bool = False
    seed: int | None = None
    report: bool = False

    def text(self) -> str:
        """Spell it for the environment; children print no report of their own."""
        seed = "" if self.seed is None else str(self.seed)
        return f"1;ops={self.ops};exclude={self.exclude};deterministic={int(self.deterministic)};seed={seed}"

    @staticmethod
    def read(text: str) -> Wish | None:
        """Read what the environment says; None if it asks for nothing."""
        first, *rest = text.split(";")
        if first in ("", "0"):
            return None
        named = dict(part.partition("=")[::2] for part in rest)
        seed = named.get("seed") or None
        return Wish(
            named.get("ops", ""),
            named.get("exclude", ""),
            named.get("deterministic") == "1",
            None if seed is None else int(seed),
        )


def begin(wish: Wish) -> None:
    """Install what was asked for, until the process ends."""
    if wish.deterministic:
        # cuBLAS reads it when CUDA is first used, which importing a program may do.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from ._installation import install
    from ._report import report

    names = [name for name in wish.ops.split(",") if name] or None
    install(names, [name for name in wish.exclude.split(",") if name], deterministic=wish.deterministic)
    if wish.seed is not None:
        random.seed(wish.seed)
        torch.manual_seed(wish.seed)
        import numpy as np

        np.random.seed(wish.seed % 2**32)
    if wish.report:
        atexit.register(lambda: print(report(), file=sys.stderr))


# What was asked for while this package was still being imported, and so could not install anything yet.
_waiting: list[Wish] = []
_is_ready = False


def ready() -> None:
    """Note that the package is whole, and do what has waited for that."""
    global _is_ready
    _is_ready = True
    while _waiting:
        _begin_or_say(_waiting.pop())


def autoload() -> None:
    """Do what the environment asks; torch calls this when it is imported, as an entry point of `torch.backends`.

    Importing this package imports torch, which may therefore call this in the middle of it.
    """
    wish = Wish.read(os.environ.get(VARIABLE, ""))
    if wish is None:
        return
    if _is_ready:
        _begin_or_say(wish)
    else:
        _waiting.append(wish)


def _begin_or_say(wish: Wish) -> None:
    # What is raised here would end the program's own import of torch.
    try:
        begin(wish)
    except Exception as error:
        print(f"pybaracuda.torch: nothing is installed: {error}", file=sys.stderr)
