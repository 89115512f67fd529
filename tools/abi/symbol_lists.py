# SPDX-License-Identifier: Apache-2.0
"""Writes tests/native/symbols.h: every symbol, as lists for the native tests, by family and by what is called alike."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tools.abi.blocks import alike, by_folder, macro, macro_name
from tools.abi.c_names import wrap_list
from tools.abi.model import Operator
from tools.abi.spec import DTYPES, LIBRARY_FUNCTIONS

# Scalars with no more values than this are flags and modes; others are extents.
_MOST_CHOICES = 16


def _tensors(operator: Operator) -> list[str]:
    """The tensors in call order, a string for each: role, the letter of the dtype or a token, extents."""
    found = []
    for tensor in operator.tensors:
        role = "in" if tensor.role == "input" else "out"
        found.append(" ".join([role, tensor.dtype, *(extent.replace(" ", "") for extent in tensor.shape)]))
    return [f'"{text}, "' for text in found[:-1]] + [f'"{found[-1]}"']


def _variants(operator: Operator) -> tuple[str, ...]:
    """What an X of the lists takes behind the operator: a symbol's suffix, then `letter, token` of each type."""
    return tuple(
        ", ".join([f"NAME##_{v.token}", "TENSORS", *(f'"{letter} {token}"' for letter, token in v.types.items())])
        for v in operator.variants
    )


def _scalars(operator: Operator) -> str | None:
    """A problem's scalars, with what they may be; None where it is more than scalars, or these stand apart."""
    if len(operator.scalars) + len(operator.tensors) != len(operator.parameters) or operator.after_workspace:
        return None
    words = []
    for scalar in operator.scalars:
        if scalar.name.endswith("numel"):
            return None
        if scalar.finite:
            words.append(f"{scalar.name}:real")
        elif scalar.low is not None and scalar.high is not None and scalar.high - scalar.low < _MOST_CHOICES:
            words.append(f"{scalar.name}:{scalar.low}:{scalar.high}")
        elif scalar.low is not None and scalar.low > 0:
            words.append(f"{scalar.name}:{scalar.low}:")
        else:
            words.append(scalar.name)
    return " ".join(words)


def _texts(words: str) -> list[str]:
    """The words as texts for C, of which as many stand beside each other as need a line each."""
    lines = textwrap.wrap(words, 80)
    return [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']


def symbol_lists(operators: Sequence[Operator]) -> Iterator[str]:
    """The parts of the file."""
    yield """\
// Every symbol, for the native tests. X(symbol without prefix and verb, its tensors, its types):
// tensors are "in|out type extents, ..." in call order, where a type is a letter or a dtype; each of the types behind
// them says which dtype a letter stands for. X takes two arguments and then one or more.
#ifndef BARACUDA_TESTS_SYMBOLS_H
#define BARACUDA_TESTS_SYMBOLS_H

/* X(function without prefix) for the functions of no operator. */
"""
    yield macro(["#define BARACUDA_LIBRARY_FUNCTIONS(X)", *(f"  X({name})" for _, name, _, _ in LIBRARY_FUNCTIONS)])
    yield "\n/* X(dtype, bytes of an element). */\n"
    yield macro(["#define BARACUDA_DTYPES(X)", *(f"  X({name}, {dtype.nbytes})" for name, dtype in DTYPES.items())])
    sets: dict[tuple[str, ...], str] = {}
    for operator in operators:
        variants = _variants(operator)
        if variants not in sets:
            sets[variants] = f"BARACUDA_VARIANTS_LIKE_{macro_name(operator)}"
            yield "\n" + macro([f"#define {sets[variants]}(X, NAME, TENSORS)", *(f"  X({each})" for each in variants)])
    folders = by_folder(operators)
    for folder, inside in folders.items():
        groups = {f"BARACUDA_SYMBOLS_LIKE_{macro_name(group[0])}": group for group in alike(inside)}
        for name, group in groups.items():
            lines = [f"#define {name}(X)"]
            for operator in group:
                head = f"  {sets[_variants(operator)]}(X, {operator.name}, "
                lines += wrap_list(head, _tensors(operator), ")", 116, " ")
            yield "\n" + macro(lines)
        yield "\n" + macro([f"#define BARACUDA_SYMBOLS_OF_{folder.upper()}(X)", *(f"  {name}(X)" for name in groups)])
    of_scalars = {operator.name: words for operator in operators if (words := _scalars(operator)) is not None}
    yield """
/* X(operator, its scalars) for the operators whose problems are scalars alone. A word is an extent's name, or has
   behind the name the least and the most that the scalar may be, or that it is a real number. */
"""
    lines = ["#define BARACUDA_SCALARS(X)"]
    for name, words in of_scalars.items():
        lines += wrap_list(f"  X({name}, ", _texts(words), ")", 116, " ")
    yield macro(lines)
    groups_of_scalars = [
        f"  BARACUDA_SYMBOLS_LIKE_{macro_name(group[0])}(X)"
        for inside in folders.values()
        for group in alike(inside)
        if group[0].name in of_scalars
    ]
    yield "\n/* Their symbols. */\n"
    yield macro(["#define BARACUDA_SYMBOLS_OF_SCALARS(X)", *groups_of_scalars])
    rows = [f"  BARACUDA_SYMBOLS_OF_{folder.upper()}(X)" for folder in folders]
    yield "\n" + macro(["#define BARACUDA_SYMBOLS(X)", *rows])
    yield "\n#endif\n"
