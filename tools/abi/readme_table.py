# SPDX-License-Identifier: Apache-2.0
"""Writes the README's table of operators: those of one family that have the same dtypes share a row."""

from __future__ import annotations

from collections.abc import Sequence

from tools.abi.model import Operator

BEGIN, END = "<!-- operators-begin -->\n", "<!-- operators-end -->"


def _dtypes(operator: Operator) -> str:
    """The dtypes of the elements, then those of the index or of the quantized values."""
    first = next(letter for letter in ("T", "C") if letter in operator.variants[0].types)
    elements = dict.fromkeys(variant.types[first] for variant in operator.variants)
    text = ", ".join(elements)
    for letter, what in (("I", "index"), ("Q", "from")):
        others = sorted({variant.types[letter] for variant in operator.variants if letter in variant.types})
        if others:
            assert len(operator.variants) == len(elements) * len(others), f"{operator.name}: not every pair of dtypes"
            text += f"; {what} {', '.join(others)}"
    return text


def readme_table(operators: Sequence[Operator]) -> str:
    """The lines between the markers."""
    rows: dict[tuple[str, str], list[str]] = {}
    for operator in operators:
        rows.setdefault((operator.family, _dtypes(operator)), []).append(f"`{operator.name}`")
    lines = ["| operators | data types |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {dtypes} |" for (_, dtypes), names in rows.items()]
    return "\n".join(lines) + "\n"


def with_table(readme: str, operators: Sequence[Operator]) -> str:
    """A README's text with its table as it must be."""
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"README.md has no {BEGIN.strip()} before an {END}")
    return before + BEGIN + readme_table(operators) + END + after
