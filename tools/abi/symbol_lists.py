# SPDX-License-Identifier: Apache-2.0
"""Writes tests/native/symbols.h: every symbol, as lists for the native tests, by family and by what is called alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.abi.blocks import alike, by_folder, macro, macro_name
from tools.abi.c_names import wrap_list
from tools.abi.model import Operator
from tools.abi.spec import DTYPES, LIBRARY_FUNCTIONS


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
    rows = [f"  BARACUDA_SYMBOLS_OF_{folder.upper()}(X)" for folder in folders]
    yield "\n" + macro(["#define BARACUDA_SYMBOLS(X)", *rows])
    yield "\n#endif\n"
