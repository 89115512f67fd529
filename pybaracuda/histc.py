# SPDX-License-Identifier: Apache-2.0
"""Histograms: descriptor, plan and array function; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan

__all__ = ["HistcDescriptor", "HistcPlan", "histc"]


@dataclass(frozen=True, slots=True)
class HistcDescriptor(Descriptor):
    """Counts of elements in bins of one width.

    Parameters
    ----------
    num_elements, bins : int
        Elements, and bins.
    min, max : float
        The range; one number twice for that of the data.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    num_elements: int
    bins: int
    min: float = 0.0
    max: float = 0.0
    element: str = "f32"

    operator: ClassVar[str] = "histc"


class HistcPlan(Plan):
    """Tensors ``input`` [num_elements] and ``output`` [bins]."""

    __slots__ = ()
    sums = False
    descriptor_type = HistcDescriptor
    category = "histogram"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, shape: tuple[int, ...], dtype: str, bins: int, low: float, high: float) -> Prepared:
    element = _call.element_of("input", dtype)
    if bins < 1:
        raise ValueError(f"bins is {bins}; wanted at least 1")
    kernel = _call.kernel_for(HistcDescriptor(prod(shape), bins, low, high, element), device)
    return Prepared(kernel, [Output((bins,), element, element)])


def histc(
    input: Any, bins: int = 100, min: float = 0.0, max: float = 0.0, *, out: Any = None, stream: Any = None
) -> Any:
    """Count elements in bins of one width, as ``torch.histc`` does on CUDA.

    Parameters
    ----------
    input : array
        Numbers of any shape in float32, float64, float16 or bfloat16.
    bins : int
        How many bins there are.
    min, max : float
        Where the first bin begins and the last one ends. If they are equal it is the range of the data; if that is one
        number, from 1 less to 1 more.
    out : array, [bins], optional
        Dense array of the input's dtype and device that receives the counts; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [bins]
        Of the input's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError
        If the input is no array or has another dtype.
    ValueError, InvalidProblemError
        If there is no bin, `max` is less than `min`, or the range is not finite.

    Notes
    -----
    Elements outside of the range and NaNs are not counted. An element x is in bin (x - min) * bins / (max - min),
    without its fraction, each step rounded in float32, or of float64 in that; `max` itself is in the last bin. Elements
    are counted in integers, so that no count stops at the largest number that the dtype tells from the next; each is
    rounded once. Where the range is that of the data and one of these is infinite or NaN, all counts are 0: nothing
    waits for the device. The same bits on every run, thread count, GPU and backend. Strided arrays are copied first.
    May be called from any number of threads.
    """
    first = read("input", input, stream)
    count, low, high = _call.whole("bins", bins), _call.number("min", min), _call.number("max", max)
    prepared = prepare(first.device, first.shape, first.dtype, count, low, high)
    return prepared.launch((first,), (out,), stream)[0]
