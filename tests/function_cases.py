# SPDX-License-Identifier: Apache-2.0
"""One call of every array function on NumPy arrays, for tests of arguments and frameworks; no result is judged here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pybaracuda
from verify.definitions.pad import MODES
from verify.dtypes import DTYPES, Array

# The modes that repeat the array; cases are named after the C operators.
PAD_MODES = MODES[1:]


class Case(NamedTuple):
    """A call: its arrays by name, in call order, then other arguments; how many arrays it answers."""

    function: Callable[..., Any]
    arrays: dict[str, Array]
    options: dict[str, Any]
    outputs: int = 1

    def __call__(self, out: Any = None, stream: Any = None, **replaced: Any) -> Any:
        return self.function(**{**self.arrays, **replaced}, **self.options, out=out, stream=stream)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Distinct small numbers in quarters, some negative."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7919 % 97 - 40) / 4).reshape(shape).astype(dtype)


def segment_cases(dtype: Any) -> dict[str, Case]:
    """Seven rows in four segments, one of them empty; two rows are dropped."""
    rows, segments = numbers((7, 5), dtype), numbers((4, 5), dtype)
    small = (rows / 8).astype(dtype)
    ids, offsets = np.array([1, 0, 3, 1, 7, -1, 0], np.int32), np.array([1, 3, 3, 5, 6], np.int32)
    holders = np.array([[1], [0], [-1], [2]], np.int32).repeat(5, 1)
    of_ids, of_offsets = {"segment_ids": ids}, {"offsets": offsets}
    count = {"num_segments": 4}
    found = {
        f"segment_{reduce}": Case(getattr(pybaracuda, f"segment_{reduce}"), {"input": rows, **of_ids}, count)
        for reduce in ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
    }
    for reduce in ("sum", "mean"):
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        found[f"segment_{reduce}_backward"] = Case(backward, {"grad_output": segments, **of_ids}, {})
    for reduce in ("max", "min"):
        found[f"segment_{reduce}_with_arg"] = found[f"segment_{reduce}"]._replace(
            options={**count, "return_arg": True}, outputs=2
        )
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        given = {"grad_output": segments, "input": rows, **of_ids}
        found[f"segment_{reduce}_backward"] = Case(backward, given, {})
        found[f"segment_{reduce}_even_backward"] = Case(backward, given, {"ties": "even"})
        given = {"grad_output": segments, "arg": holders, **of_ids}
        found[f"segment_{reduce}_with_arg_backward"] = Case(backward, given, {"input": None})
    for reduce in ("prod", "logsumexp"):
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        given = {"grad_output": segments, "input": small, "output": segments, **of_ids}
        found[f"segment_{reduce}_backward"] = Case(backward, given, {})
    return {
        **found,
        "segment_softmax_backward": Case(
            pybaracuda.segment_softmax_backward, {"grad_output": rows, "output": small, **of_ids}, count
        ),
        "segment_gather": Case(pybaracuda.segment_gather, {"input": segments, **of_ids}, {}),
        "segment_sum_sorted": Case(
            pybaracuda.segment_sum,
            {"input": rows, "segment_ids": np.sort(ids)},
            {**count, "indices_are_sorted": True},
        ),
        "segment_csr": Case(pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "mean"}),
        "segment_csr_with_arg": Case(
            pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "min", "return_arg": True}, 2
        ),
        "segment_csr_backward": Case(
            pybaracuda.segment_csr_backward,
            {"grad_output": segments, "input": rows, **of_offsets},
            {"reduce": "max"},
        ),
        "segment_sum_empty_value": found["segment_sum"]._replace(options={**count, "empty_value": -1.5}),
        "segment_max_with_arg_empty_value": found["segment_max_with_arg"]._replace(
            options={**count, "return_arg": True, "empty_value": 0}
        ),
        "segment_csr_empty_value": Case(
            pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "logsumexp", "empty_value": 2}
        ),
        "gather_csr": Case(pybaracuda.gather_csr, {"input": segments, **of_offsets}, {"num_rows": 7}),
        "unsorted_segment_max": Case(pybaracuda.unsorted_segment_max, {"input": rows, **of_ids}, count),
        "unsorted_segment_max_backward": Case(
            pybaracuda.unsorted_segment_max_backward, {"grad_output": segments, "input": rows, **of_ids}, {}
        ),
    }


def cases(dtype: Any = np.float32) -> dict[str, Case]:
    """One call of every function. Coordinates are float64 for float64 data, else float32."""
    wide = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    boxes = np.array([[0, 0.5, 1, 5, 4], [1, 1, 0, 3, 6], [1, -2, -2, 9, 9]], wide)
    image = numbers((2, 3, 6, 7), dtype)
    grid = np.tanh(numbers((2, 4, 5, 2), wide) / 8)
    roi = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True}
    return {
        "roi_align": Case(pybaracuda.roi_align, {"input": image, "boxes": boxes}, {"output_size": (2, 3), **roi}),
        "roi_align_backward": Case(
            pybaracuda.roi_align_backward,
            {"grad_output": numbers((3, 3, 2, 3), dtype), "boxes": boxes},
            {"input_shape": (2, 3, 6, 7), **roi},
        ),
        "grid_sample": Case(pybaracuda.grid_sample, {"input": image, "grid": grid}, {}),
        "grid_sample_backward": Case(
            pybaracuda.grid_sample_backward,
            {"grad_output": numbers((2, 3, 4, 5), dtype), "input": image, "grid": grid},
            {},
            2,
        ),
        "affine_grid": Case(pybaracuda.affine_grid, {"theta": numbers((2, 2, 3), wide)}, {"size": (2, 3, 4, 5)}),
        "affine_grid_backward": Case(
            pybaracuda.affine_grid_backward, {"grad_grid": numbers((2, 4, 5, 2), wide)}, {"size": (2, 3, 4, 5)}
        ),
        "pad": Case(
            pybaracuda.pad, {"input": image}, {"pad_low": (0, 1, 2, 0), "pad_high": (1, 0, 1, 3), "value": -1.5}
        ),
        "pad_backward": Case(
            pybaracuda.pad_backward,
            {"grad_output": numbers((3, 4, 9, 10), dtype)},
            {"pad_low": (0, 1, 2, 0), "pad_high": (1, 0, 1, 3)},
        ),
        **{
            f"pad_{mode}": Case(
                pybaracuda.pad, {"input": image}, {"pad_low": (0, 1, 2, 0), "pad_high": (1, 0, 1, 3), "mode": mode}
            )
            for mode in PAD_MODES
        },
        **{
            f"pad_{mode}_backward": Case(
                pybaracuda.pad_backward,
                {"grad_output": numbers((3, 4, 9, 10), dtype)},
                {"pad_low": (0, 1, 2, 0), "pad_high": (1, 0, 1, 3), "mode": mode},
            )
            for mode in PAD_MODES
        },
        "pad_ex": Case(
            pybaracuda.pad, {"input": image}, {"pad_low": (0, 1, -2, 0), "pad_high": (1, -1, 1, 3), "value": -1.5}
        ),
        "pad_ex_backward": Case(
            pybaracuda.pad_backward,
            {"grad_output": numbers((3, 3, 5, 10), dtype)},
            {"pad_low": (0, 1, -2, 0), "pad_high": (1, -1, 1, 3), "mode": "circular"},
        ),
        **segment_cases(dtype),
        "dequantize_per_channel": Case(
            pybaracuda.dequantize_per_channel,
            {
                "input": (np.arange(24) * 11 - 120).astype(np.int8).reshape(2, 3, 4),
                "scale": np.array([0.5, 2, 0.75], dtype),
                "zero_point": np.array([-3, 0, 7], np.int32),
            },
            {"axis": 1},
        ),
        "dequantize_per_channel_backward": Case(
            pybaracuda.dequantize_per_channel_backward,
            {"grad_output": numbers((2, 3, 4), dtype), "scale": np.array([0.5, 2, 0.75], dtype)},
            {"axis": 1},
        ),
    }


FUNCTION = pytest.mark.parametrize("name", list(cases()))
DTYPE = pytest.mark.parametrize("token", list(DTYPES))


def listed(result: Any) -> list[Any]:
    """The outputs of a call as a list."""
    return list(result) if isinstance(result, tuple) else [result]
