# SPDX-License-Identifier: Apache-2.0
"""A batch whose entries have segments of their own, as one problem: ids and rows numbered through all entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._arrays import Operand, read
from .._call import Output, Prepared
from .._errors import InvalidProblemError
from .._kernel import Kernel

__all__ = ["MOST_SEGMENTS", "BatchPrepared", "check_batch"]

# What an int32 counts.
MOST_SEGMENTS = 2**31 - 1


def check_batch(size: int, num_rows: int, num_segments: int) -> None:
    """Refuse a batch whose segments or rows an int32 does not count."""
    for name, each in (("segments", num_segments), ("rows", num_rows)):
        if max(size, 1) * each > MOST_SEGMENTS:
            raise InvalidProblemError(
                f"segment_ids: a batch of {size} with {each} {name} each; wanted at most {MOST_SEGMENTS} in all"
            )


class BatchPrepared(Prepared):
    """A kernel on all entries of a batch, whose callers number segments and rows within their entry.

    Parameters
    ----------
    kernel : Kernel
        Of the rows and segments of all entries.
    outputs : sequence of Output
        In the order of the C arguments, with the batch's axis.
    inputs : sequence of str
        The arrays' names in the order of the C arguments.
    index : str
        Dtype of the numbers.
    num_rows, num_segments : int
        Of one entry.
    """

    __slots__ = ("_answers_rows", "_counts", "_index", "_num_rows", "_size")

    def __init__(
        self,
        kernel: Kernel,
        outputs: Sequence[Output],
        inputs: Sequence[str],
        index: str,
        num_rows: int,
        num_segments: int,
    ) -> None:
        super().__init__(kernel, outputs)
        self._index = index
        self._num_rows = num_rows
        self._size = outputs[0].shape[0]
        # What the numbers of an input count in each entry.
        self._counts = tuple({"segment_ids": num_segments, "arg": num_rows}.get(name) for name in inputs)
        self._answers_rows = len(outputs) == 2

    def _launch(self, primary: Operand, inputs: tuple[Operand, ...], outs: Sequence[Any], stream: int) -> list[Any]:
        numbered = []
        for operand, count in zip(inputs, self._counts, strict=True):
            if count is not None:
                array = operand.adapter.renumbered(operand, self._index, count, count, None, stream)
                operand = operand.adapter.read(operand.name, array, stream, primary)
            numbered.append(operand)
        results = super()._launch(primary, tuple(numbered), outs, stream)
        if self._answers_rows:
            arg = read("arg", results[1], stream, primary)
            target = None if outs[1] is None else arg
            bound = self._size * self._num_rows
            own = arg.adapter.renumbered(arg, self._index, bound, -self._num_rows, target, stream)
            results[1] = own if target is None else results[1]
        return results
