# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of operators: docs/operators.md names each one, the README has a row for equal dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from tools.abi.model import Operator

# Forwards of a family that may share its row.
_FEW = 3
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


def whole_table(operators: Sequence[Operator]) -> str:
    """docs/operators.md's: operators of one family that have the same dtypes share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for operator in operators:
        rows.setdefault((operator.family, _dtypes(operator)), []).append(f"`{operator.name}`")
    lines = ["| operators | data types |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {dtypes} |" for (_, dtypes), names in rows.items()]
    return "\n".join(lines) + "\n"


def _together(names: Sequence[str]) -> str:
    """Names that begin alike as one text: `pad_` constant, reflect; each whole if one is how the others begin."""
    if len(names) == 1:
        return f"`{names[0]}`"
    columns = zip(*(name.split("_") for name in names), strict=False)
    prefix = "".join(f"{words[0]}_" for words in takewhile(lambda words: len(set(words)) == 1, columns))
    if f"{names[0]}_" == prefix:
        return ", ".join(f"`{name}`" for name in names)
    return f"`{prefix}` " + ", ".join(name.removeprefix(prefix) for name in names)


def _in_one_text(forwards: Sequence[Operator]) -> str:
    """A family's forwards; a name that begins like no other of its family stands apart."""
    first = forwards[0].name.partition("_")[0]
    alike = [operator.name for operator in forwards if operator.name.partition("_")[0] == first]
    apart = [f"`{operator.name}`" for operator in forwards if operator.name not in alike]
    return ", ".join([_together(alike), *apart])


def readme_table(operators: Sequence[Operator]) -> str:
    """The README's: a row for families of equal dtypes, with their forwards and the count of their gradients."""
    families: dict[str, list[Operator]] = {}
    for operator in operators:
        families.setdefault(operator.family, []).append(operator)
    rows: dict[frozenset[str], tuple[str, list[str], int]] = {}
    for members in families.values():
        gradients = [operator for operator in members if operator.name.endswith(("_backward", "_bw"))]
        text = _in_one_text([operator for operator in members if operator not in gradients])
        most = max((_dtypes(operator) for operator in members), key=len)
        key = frozenset(most.replace(";", ",").split(", "))
        dtypes, texts, count = rows.get(key, (most, [], 0))
        rows[key] = (dtypes, [*texts, text], count + len(gradients))
    lines = ["| operators | gradients | data types |", "|---|---:|---|"]
    lines += [f"| {'; '.join(texts)} | {count} | {dtypes} |" for dtypes, texts, count in rows.values()]
    return "\n".join(lines) + "\n"


TABLES = {"README.md": readme_table, "docs/operators.md": whole_table}


def with_table(name: str, text: str, operators: Sequence[Operator]) -> str:
    """The text of one of TABLES' pages with its table as it must be."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{name} has no {BEGIN.strip()} before an {END}")
    return before + BEGIN + TABLES[name](operators) + END + after
