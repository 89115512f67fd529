# SPDX-License-Identifier: Apache-2.0
"""The promise about bits, proven on the machine it runs on: fixed cases, their committed hashes, and what runs them."""

from __future__ import annotations


def check(*, quick: bool = False, backend: str | None = None) -> bool:
    """Compare the bits that this machine computes with the committed ones, and print what was found.

    Every operator in every dtype runs on fixed inputs: on the CPU with each instruction set, several thread counts and
    a caller that flushes subnormal numbers to zero, and on every GPU. Each configuration is a process of its own.
    ``python -m pybaracuda check`` does the same.

    Parameters
    ----------
    quick : bool
        A sample of the cases that reaches every operator and dtype, in a few seconds.
    backend : {"cpu", "cuda"}, optional
        Only this backend. By default the CPU, and CUDA if it is available.

    Returns
    -------
    bool
        Whether all bits are equal.

    Raises
    ------
    BackendUnavailableError
        If the CPU library is missing, or ``backend`` is not available.
    RuntimeError
        If something could not run, and what did run has no other bits.
    """
    from . import report

    if backend not in (None, "cpu", "cuda"):
        raise ValueError(f"backend is {backend!r}; wanted 'cpu', 'cuda' or None")
    code = report.check(quick, backend)
    if code == report.NOT_RUN:
        raise RuntimeError("not every configuration could run; what was printed says why")
    return code == report.EQUAL
