# SPDX-License-Identifier: Apache-2.0
"""The fixed problems whose output bits are committed in bits.txt: what they are and their input bytes.

A change of a case changes its hash; add cases instead. Seeds are the CRC-32 of "case/tensor", what tensors hold is made
in content.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .. import _abi
from .abi_calls import Symbol, Value, Values, completed, numel, places, span, symbols
from .content import (
    INT32_MIN,
    Maker,
    any_bits,
    bad_boxes,
    bad_ids,
    bad_positions,
    boxes,
    centre,
    far_boxes,
    far_zero_points,
    holed_offsets,
    ids,
    near_one,
    offsets,
    on_pixels,
    plain,
    positions,
    rows,
    scales,
    skewed_ids,
    sorted_ids,
    special,
    subnormal,
    subnormal_singles,
    tied,
    whole_numbers,
    wide,
    zero_points,
)
from .splitmix import Array


class Case(NamedTuple):
    """One problem of one symbol; `inputs` are bytes, gaps between strides included."""

    name: str
    description: str
    symbol: Symbol
    values: Values
    inputs: dict[str, Array]

    def elements(self, tensor: _abi.Tensor, content: Array) -> Array:
        """The bytes of a tensor's elements in row-major order, out of the bytes of its span."""
        width = self.symbol.element_bytes(tensor)
        return np.ravel(content.reshape(-1, width)[places(tensor, self.values)])


class Problem(NamedTuple):
    """A problem that every variant of some operators gets; a maker for every tensor that is not plain numbers."""

    name: str
    description: str
    values: Values
    makers: Mapping[str, Maker] = MappingProxyType({})
    # Operators that need not have it, by what their names contain.
    without: tuple[str, ...] = ()
    # Whether integers have no such problem.
    floats_only: bool = False
    # Whether the elements among the arguments are subnormal.
    subnormal: bool = False


TENTH = float(np.float32(0.1))


def _roi(
    image: tuple[int, int, int, int], num_rois: int, bins: tuple[int, int], scale: float, ratio: int, aligned: int
) -> Values:
    extents_: Values = dict(zip(("n", "c", "h", "w", "pooled_h", "pooled_w"), image + bins, strict=True))
    return {**extents_, "num_rois": num_rois, "spatial_scale": scale, "sampling_ratio": ratio, "aligned": aligned}


_ROI = [
    Problem(
        "typical", "two images, 7 x 7 bins, two samples a bin and axis",
        _roi((2, 5, 20, 30), 24, (7, 7), 0.25, 2, 1),
        {"rois": boxes},
    ),
    Problem(
        "adaptive", "odd sizes, an adaptive sample count, a scale that no binary fraction holds",
        _roi((3, 3, 17, 19), 11, (3, 5), TENTH, -1, 0),
        {"rois": boxes},
    ),
    Problem(
        "small-map", "200 boxes on an 8 x 9 map: the sum over boxes is cut into 4 blocks",
        _roi((1, 2, 8, 9), 200, (2, 3), 1.0, 1, 0),
        {"rois": boxes, "input": wide, "grad_output": wide},
    ),
    Problem(
        "many-boxes", "700 boxes over a 4 x 4 map: blocks of many boxes, hundreds of terms a pixel",
        _roi((1, 1, 4, 4), 700, (1, 2), 0.5, 2, 1),
        {"rois": boxes, "input": wide, "grad_output": wide},
    ),
    Problem(
        "borders", "65 channels and a 17 x 65 map, one past every tile and channel block; two blocks of boxes",
        _roi((1, 65, 17, 65), 70, (2, 2), 0.5, 0, 1),
        {"rois": boxes},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _roi((1, 2, 9, 11), 40, (2, 2), 1.0, 2, 0),
        {"rois": bad_boxes, "input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _roi((1, 3, 6, 7), 9, (2, 2), 1.0, 3, 1),
        {"rois": boxes, "input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "subnormal-scale", "a scale that is subnormal, and boxes far enough for it to matter",
        _roi((2, 3, 6, 7), 19, (2, 3), float(np.float32(1e-40)), 3, 0),
        {"rois": far_boxes},
    ),
]  # fmt: skip


def _grid(n: int, c: int, input_h: int, input_w: int, output_h: int, output_w: int) -> Values:
    return {"n": n, "c": c, "input_h": input_h, "input_w": input_w, "output_h": output_h, "output_w": output_w}


_GRID = [
    Problem("typical", "two images, samples in and around them", _grid(2, 3, 16, 18, 13, 17), {"grid": positions}),
    Problem("on-pixels", "coordinates in eighths: weights of exactly 0, 1/2 and 1", _grid(1, 5, 8, 4, 11, 3),
            {"grid": on_pixels}),
    Problem("crowded", "728 samples on 3 x 3 pixels: lists of more than 256 terms", _grid(2, 2, 3, 3, 28, 26),
            {"grid": positions, "input": wide, "grad_output": wide}),
    *(
        Problem(f"list-of-{count}", f"one pixel with exactly {count} terms", _grid(1, 2, 1, 1, 1, count),
                {"grid": centre, "input": wide, "grad_output": wide})
        for count in (255, 256, 257, 512, 513)
    ),
    *(
        Problem(f"channels-{count}", f"{count} channels: the grid's gradient is cut every 64",
                _grid(1, count, 4, 5, 3, 7), {"grid": positions, "input": wide, "grad_output": wide})
        for count in (63, 64, 65, 130)
    ),
    Problem("parallel", "enough work for several threads", _grid(2, 12, 48, 50, 70, 66), {"grid": positions}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals in data and grid", _grid(2, 2, 7, 9, 12, 11),
            {"grid": bad_positions, "input": special, "grad_output": special}),
    Problem("subnormal", "subnormal data alone", _grid(1, 3, 5, 5, 6, 7),
            {"grid": positions, "input": subnormal, "grad_output": subnormal}),
]  # fmt: skip


def _affine(n: int, output_h: int, output_w: int) -> Values:
    return {"n": n, "output_h": output_h, "output_w": output_w}


_AFFINE_WIDE: dict[str, Maker] = {"theta": plain, "grad_grid": wide}
_AFFINE = [
    Problem("typical", "three maps of 13 x 17", _affine(3, 13, 17), _AFFINE_WIDE),
    Problem("one-sample", "1 x 1", _affine(2, 1, 1), _AFFINE_WIDE),
    *(
        Problem(f"list-of-{h * w}", f"{h} x {w} samples: sums of {h * w} terms", _affine(1, h, w), _AFFINE_WIDE)
        for h, w in ((15, 17), (16, 16), (257, 1), (1, 512), (19, 27))
    ),
    Problem("parallel", "enough work for several threads", _affine(4, 150, 130), _AFFINE_WIDE),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _affine(8, 5, 7),
            {"theta": special, "grad_grid": special}),
    Problem("subnormal", "subnormal data alone", _affine(2, 9, 31), {"theta": subnormal, "grad_grid": subnormal}),
]  # fmt: skip


def _pad(shape: list[int], low: list[int], high: list[int], **strides: list[int]) -> Values:
    padded = [extent + before + after for extent, before, after in zip(shape, low, high, strict=True)]
    return {"rank": len(shape), "input_shape": shape, "pad_low": low, "output_shape": padded, **strides}


_PAD_BITS: dict[str, Maker] = {"input": any_bits, "grad_output": any_bits}
_PAD = [
    Problem("typical", "a batch of images padded on two axes", _pad([2, 3, 9, 11], [0, 0, 1, 2], [0, 0, 3, 0])),
    Problem("rank-8", "eight axes", _pad([2, 1, 2, 3, 1, 2, 1, 3], [0, 1, 0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0, 1, 0])),
    Problem("rank-0", "one element", _pad([], [], [])),
    Problem("nothing-but-padding", "an empty input", _pad([0, 3], [2, 1], [3, 1])),
    Problem("long-pads", "pads wider than the input", _pad([3, 5], [10, 70], [33, 4])),
    Problem("special", "every kind of bit pattern moves unchanged", _pad([3, 7, 13], [1, 0, 5], [0, 2, 4]), _PAD_BITS),
    Problem("parallel", "enough work for several threads", _pad([3, 150, 170], [0, 1, 3], [0, 2, 1]), _PAD_BITS),
    # The padded tensor's rows lie 9 apart and its columns are contiguous; the other one is transposed, or has gaps.
    Problem("strided", "transposed input, rows of the output apart",
            _pad([4, 6], [1, 0], [0, 2], input_strides=[1, 4], grad_input_strides=[1, 4], output_strides=[9, 1],
                 grad_output_strides=[9, 1]), _PAD_BITS),
    Problem("strides-apart", "every second element, rows backwards where they are read",
            _pad([3, 5], [1, 2], [0, 1], input_strides=[-11, 2], grad_input_strides=[13, 2], output_strides=[20, 2],
                 grad_output_strides=[-20, 2]), _PAD_BITS),
    Problem("broadcast", "an input read with stride 0",
            _pad([3, 5], [0, 1], [1, 1], input_strides=[0, 1], grad_output_strides=[0, 1]), _PAD_BITS),
    Problem("subnormal-value", "padding with a subnormal number", _pad([3, 7], [1, 2], [0, 3]), subnormal=True),
]  # fmt: skip


# The modes that repeat the input. Where an element has several gradients they are added, 256 at a time.
_PAD_REPEATED_WIDE: dict[str, Maker] = {"input": any_bits, "grad_output": wide}
_PAD_REPEATED_BITS: dict[str, Maker] = {"input": any_bits, "grad_output": special}
_PAD_REPEATED = [
    Problem("typical", "a batch of images padded on two axes", _pad([2, 3, 9, 11], [0, 0, 1, 2], [0, 0, 3, 0]),
            _PAD_REPEATED_WIDE),
    Problem("rank-8", "eight axes", _pad([2, 2, 3, 2, 1, 2, 3, 3], [0, 1, 0, 1, 2, 0, 2, 1], [1, 0, 1, 0, 1, 0, 1, 0]),
            _PAD_REPEATED_WIDE),
    Problem("rank-0", "one element", _pad([], [], [])),
    Problem("maximal", "every element but the ends has an image on either side", _pad([5, 7, 6], [0, 6, 5], [0, 6, 5]),
            _PAD_REPEATED_WIDE),
    Problem("several-periods", "pads several times as wide as the input", _pad([2, 3, 5], [0, 10, 70], [0, 33, 4]),
            _PAD_REPEATED_WIDE),
    *(
        Problem(f"list-of-{low + 1 + high}", f"one element with exactly {low + 1 + high} terms",
                _pad([3, 1], [0, low], [0, high]), _PAD_REPEATED_WIDE)
        for low, high in ((100, 154), (255, 0), (0, 256), (256, 256))
    ),
    Problem("two-axes-of-one", "lists of 17 x 31 terms", _pad([1, 2, 1], [16, 0, 11], [0, 0, 19]), _PAD_REPEATED_WIDE),
    Problem("small-planes", "many planes of 7 x 7", _pad([83, 7, 7], [0, 1, 1], [0, 1, 1]), _PAD_REPEATED_WIDE),
    Problem("whole-rows", "planes whose rows are whole vectors", _pad([3, 6, 24], [0, 1, 3], [0, 2, 4]),
            _PAD_REPEATED_WIDE),
    Problem("whole-rows-special", "the same with NaN payloads, infinities and zeros, one wide",
            _pad([2, 5, 16], [0, 1, 1], [0, 1, 1]), _PAD_REPEATED_BITS),
    Problem("pairs", "two elements an axis: a mirror image is a period away", _pad([9, 2, 2], [0, 1, 3], [0, 2, 0]),
            _PAD_REPEATED_WIDE),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _pad([3, 7, 13], [1, 0, 5], [0, 2, 4]),
            _PAD_REPEATED_BITS),
    Problem("parallel", "enough work for several threads", _pad([3, 150, 170], [0, 1, 3], [0, 2, 3]),
            _PAD_REPEATED_WIDE),
    Problem("unpadded", "no axis is padded: nothing is added", _pad([4, 5], [0, 0], [0, 0]), _PAD_BITS),
    Problem("strided", "transposed input, rows of the output apart",
            _pad([4, 6], [1, 2], [0, 2], input_strides=[1, 4], grad_input_strides=[1, 4], output_strides=[11, 1],
                 grad_output_strides=[11, 1]), _PAD_REPEATED_WIDE),
    Problem("strides-apart", "every second element, rows backwards where they are read",
            _pad([3, 5], [1, 2], [0, 1], input_strides=[-11, 2], grad_input_strides=[13, 2], output_strides=[20, 2],
                 grad_output_strides=[-20, 2]), _PAD_REPEATED_WIDE),
    Problem("broadcast", "an input read with stride 0",
            _pad([3, 5], [0, 1], [1, 1], input_strides=[0, 1], grad_output_strides=[0, 1]), _PAD_REPEATED_WIDE),
]  # fmt: skip

# Modes in the order of the numbers that the options give them.
_PAD_MODES = ("constant", "reflect", "replicate", "circular", "symmetric")
_PAD_EX = [
    *(
        Problem(f"crop-and-pad-{name}", f"mode {name}, pads of both signs on every axis",
                {**_pad([3, 8, 9], [0, -2, 4], [-1, 3, -3]), "mode": number}, _PAD_REPEATED_WIDE)
        for number, name in enumerate(_PAD_MODES)
    ),
    *(
        Problem(f"several-periods-{name}", f"mode {name}, pads wider than what is left",
                {**_pad([4, 9], [0, -5], [-1, 23]), "mode": number}, _PAD_REPEATED_WIDE)
        for number, name in enumerate(_PAD_MODES)
    ),
    Problem("subnormal-value", "padding with a subnormal number", {**_pad([3, 7], [1, -2], [0, 3]), "mode": 0},
            subnormal=True),
    Problem("crop", "nothing is added", {**_pad([6, 7], [-1, -2], [-2, -3]), "mode": 1}, _PAD_BITS),
    Problem("crop-all", "nothing is left", {**_pad([3, 4], [-1, 0], [-2, 0]), "mode": 2}),
    Problem("crop-all-then-pad", "nothing is left to see", {**_pad([3, 4], [-3, 1], [2, 0]), "mode": 0}),
]  # fmt: skip


def _segment(num_inputs: int, embedding_dim: int, num_segments: int) -> Values:
    return {"num_inputs": num_inputs, "embedding_dim": embedding_dim, "num_segments": num_segments}


_SEGMENT = [
    Problem("typical", "random ids", _segment(60, 7, 13), {"segment_ids": ids}),
    Problem("ties", "few distinct values, zeros of both signs: the first row wins", _segment(90, 5, 6),
            {"segment_ids": ids, "input": tied}),
    Problem("one-segment", "lists of 600 rows", _segment(600, 3, 1), {"segment_ids": ids, "input": tied}),
    Problem("skewed", "one segment takes most of 700 rows", _segment(700, 17, 9), {"segment_ids": skewed_ids}),
    Problem("sparse", "more segments than rows: most are empty", _segment(40, 65, 300), {"segment_ids": ids}),
    Problem("bad-ids", "ids out of range are dropped, half of the segments are empty", _segment(120, 4, 10),
            {"segment_ids": bad_ids}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _segment(150, 6, 11),
            {"segment_ids": ids, "input": any_bits, "grad_output": any_bits},
            ("sum", "mean", "prod", "logsumexp", "softmax", "even")),
    Problem("parallel", "enough work for several threads", _segment(1200, 96, 40), {"segment_ids": ids}),
]  # fmt: skip


def _rows(num_rows: int, embedding_dim: int, num_segments: int) -> Values:
    return {**_segment(num_rows, embedding_dim, num_segments), "num_rows": num_rows}


_SEGMENT_SORTED = [
    Problem("typical", "ascending ids", _rows(60, 7, 13), {"segment_ids": sorted_ids}),
    Problem("two-pieces", "segments of more than 256 rows", _rows(700, 17, 2), {"segment_ids": sorted_ids}),
    Problem("one-segment", "lists of 600 rows", _rows(600, 3, 1), {"segment_ids": sorted_ids}),
    Problem("sparse", "more segments than rows: most are empty", _rows(40, 65, 300), {"segment_ids": sorted_ids}),
    Problem("parallel", "enough work for several threads", _rows(1200, 96, 40), {"segment_ids": sorted_ids}),
]  # fmt: skip
_SEGMENT_CSR = [
    Problem("typical", "ascending offsets", _rows(60, 7, 13), {"offsets": offsets}),
    Problem("two-pieces", "segments of more than 256 rows", _rows(700, 17, 2), {"offsets": offsets}),
    Problem("one-segment", "lists of 600 rows", _rows(600, 3, 1), {"offsets": offsets}),
    Problem("sparse", "more segments than rows: most are empty", _rows(40, 65, 300), {"offsets": offsets}),
    Problem("parallel", "enough work for several threads", _rows(1200, 96, 40), {"offsets": offsets}),
]  # fmt: skip


def _segment_ex(reduce: int, form: int, shape: tuple[int, int, int], **more: Value) -> Values:
    return {**_rows(*shape), "reduce": reduce, "form": form, **more}


# Reductions and forms by number, as the options have them.
_SEGMENT_EX = [
    Problem("sum", "any ids, half of the segments without rows", _segment_ex(0, 0, (120, 4, 10)), {"index": bad_ids}),
    Problem("mean", "ascending ids", _segment_ex(1, 1, (60, 7, 13)), {"index": sorted_ids}, floats_only=True),
    Problem("max", "offsets, most segments without rows", _segment_ex(2, 2, (40, 65, 300)), {"index": offsets}),
    Problem("min", "any ids, most segments without rows", _segment_ex(3, 0, (40, 65, 300)),
            {"index": ids, "input": tied}),
    Problem("prod", "offsets, segments of more than 256 rows", _segment_ex(4, 2, (1500, 17, 3)),
            {"index": holed_offsets, "input": near_one}),
    Problem("logsumexp", "any ids, half of the segments without rows", _segment_ex(5, 0, (120, 4, 10)),
            {"index": bad_ids}, floats_only=True),
    Problem("max-with-arg", "ascending ids, segments of more than 256 rows", _segment_ex(6, 1, (1500, 17, 3)),
            {"index": sorted_ids, "input": tied}),
    Problem("min-with-arg", "any ids, half of the segments without rows", _segment_ex(7, 0, (120, 4, 10)),
            {"index": bad_ids, "input": tied}),
    Problem("subnormal-value", "segments without rows are a subnormal number", _segment_ex(0, 0, (40, 3, 60)),
            {"index": ids}, floats_only=True, subnormal=True),
    Problem("own-value", "no value is given", _segment_ex(7, 2, (40, 3, 60), empty_value=None), {"index": offsets}),
    Problem("parallel", "enough work for several threads", _segment_ex(2, 0, (1200, 96, 40)), {"index": bad_ids}),
]  # fmt: skip


_CHANNEL_MAKERS: dict[str, Maker] = {"scale": scales, "zero_point": zero_points}
_CHANNEL = [
    *(
        Problem(f"axis-{axis}", f"channels along axis {axis}", {"shape": [3, 5, 7, 11], "axis": axis}, _CHANNEL_MAKERS)
        for axis in range(4)
    ),
    Problem("one-channel", "a single channel of odd length", {"shape": [1, 1, 1, 259], "axis": 1}, _CHANNEL_MAKERS),
    Problem("special", "scales that are zero, subnormal, infinite or NaN", {"shape": [2, 40, 1, 33], "axis": 1},
            {"scale": special, "zero_point": zero_points, "grad_output": special}),
    Problem("far-zero-points", "zero points up to 2^15", {"shape": [2, 40, 1, 33], "axis": 1},
            {"scale": scales, "zero_point": far_zero_points}),
    Problem("parallel", "enough work for several threads", {"shape": [4, 33, 40, 41], "axis": 1}, _CHANNEL_MAKERS),
    Problem("subnormal", "products that are subnormal", {"shape": [1, 20, 1, 31], "axis": 1},
            {"scale": subnormal, "zero_point": zero_points, "grad_output": plain}),
    Problem("subnormal-scale", "scales that are subnormal in f32, also where they are f64",
            {"shape": [2, 20, 1, 31], "axis": 1}, {"scale": subnormal_singles, "zero_point": zero_points}),
]  # fmt: skip

# By family, or by operator where one of a family takes others.
PROBLEMS: dict[str, list[Problem]] = {
    "roi_align": _ROI,
    "grid_sample": _GRID,
    "affine_grid": _AFFINE,
    "pad": _PAD_REPEATED,
    "pad_constant": _PAD,
    "pad_constant_backward": _PAD,
    "pad_ex": _PAD_EX,
    "pad_ex_backward": _PAD_EX,
    "segment": _SEGMENT,
    "segment_sorted": _SEGMENT_SORTED,
    "segment_csr": _SEGMENT_CSR,
    "segment_ex": _SEGMENT_EX,
    "dequantize": _CHANNEL,
}

# The padding value by dtype: a NaN with a payload for the 16-bit types (a bit pattern), a plain number otherwise.
PAD_VALUES = {
    "f32": TENTH, "f64": 0.1, "f16": 0x7D23, "bf16": 0xFF91, "b8": 0x9C, "b16": 0x8001, "b32": 0xFFA00001,
    "b64": 0xFFF0000000000123, "b128": 0xFEDCBA98765432100123456789ABCDEF,
}  # fmt: skip


# What a segment without rows is, by dtype: NaNs with a payload for the 16-bit types, -0.0 for f64.
EMPTY_VALUES = {"f32": TENTH, "f64": -0.0, "f16": 0x7D23, "bf16": 0xFF91, "i32": INT32_MIN, "i64": 2**53 + 1}


# Subnormal elements: some 1e-42 in f32, and the first places of the others.
SUBNORMAL_VALUES = {"f32": float(np.float32(1e-42)), "f64": 7 * 2.0**-1074, "f16": 0x0003, "bf16": 0x8005}


def _values(symbol: Symbol, problem: Problem) -> Values:
    """The problem's values that this operator takes."""
    names = {s.name for s in symbol.scalars} | {a.name for a in symbol.host_arrays}
    chosen: Values = {name: value for name, value in problem.values.items() if name in names}
    if "value" in names | {field.name for field in symbol.fields}:
        chosen["value"] = PAD_VALUES[symbol.variant.token]
        if problem.subnormal:
            chosen["value"] = SUBNORMAL_VALUES.get(symbol.variant.token, chosen["value"])
    if any(field.name == "empty_value" for field in symbol.fields):
        chosen["empty_value"] = problem.values.get("empty_value", EMPTY_VALUES[symbol.variant.types["T"]])
        if problem.subnormal:
            chosen["empty_value"] = SUBNORMAL_VALUES[symbol.variant.types["T"]]
    return completed(symbol, chosen)


def case(symbol: Symbol, problem: Problem) -> Case:
    name = name_of(symbol, problem)
    values = _values(symbol, problem)
    inputs = {}
    for tensor in symbol.tensors:
        if tensor.role == "input":
            seed = zlib.crc32(f"{name}/{tensor.name}".encode())
            maker = problem.makers.get(tensor.name, plain)
            if tensor.name == "arg":
                maker = rows
            elif tensor.dtype == "T" and symbol.dtype(tensor) in ("i32", "i64"):
                maker = whole_numbers  # also where floats have ties: their encoding would lose the halves
            elif tensor.dtype == "T" and "_prod" in symbol.operator.name:
                maker = near_one
            content = maker(seed, span(tensor, values).elements, symbol.dtype(tensor), values)
            assert content.nbytes == span(tensor, values).elements * symbol.element_bytes(tensor), (name, tensor.name)
            inputs[tensor.name] = content
    return Case(name, problem.description, symbol, values, inputs)


def problems_of(symbol: Symbol) -> list[Problem]:
    """A symbol's problems. An operator without any is an error, not a gap."""
    operator = symbol.operator
    problems = PROBLEMS.get(operator.name, PROBLEMS.get(operator.family))
    if not problems:
        raise AssertionError(f"{operator.name} has no problem in pybaracuda/_check/cases.py: add some")
    of_integers = symbol.variant.types.get("T") in ("i32", "i64")
    return [
        problem
        for problem in problems
        if not any(part in operator.name for part in problem.without) and not (of_integers and problem.floats_only)
    ]


def cases_of(symbol: Symbol) -> list[Case]:
    """A symbol's cases, one of each problem."""
    return [case(symbol, problem) for problem in problems_of(symbol)]


def cases() -> Iterator[Case]:
    """Every case, in the order of the ABI table."""
    for symbol in symbols():
        yield from cases_of(symbol)


def _sampled() -> Iterator[tuple[Symbol, Problem]]:
    # Symbols of a family that have the same problems.
    groups: dict[tuple[str, ...], list[Symbol]] = {}
    for symbol in symbols():
        names = (problem.name for problem in problems_of(symbol))
        groups.setdefault((symbol.operator.family, *names), []).append(symbol)
    for group in groups.values():
        for turn, symbol in enumerate(group):
            problems = problems_of(symbol)
            for problem in problems[turn % len(problems) :: len(group)]:
                yield symbol, problem


def sample() -> Iterator[Case]:
    """A case of every operator and dtype, and of every problem: the symbols of a family take its problems in turns."""
    for symbol, problem in _sampled():
        yield case(symbol, problem)


def name_of(symbol: Symbol, problem: Problem) -> str:
    return f"{symbol.name}/{problem.name}"


def names() -> list[str]:
    """What every case is called; its inputs are not made."""
    return [name_of(symbol, problem) for symbol in symbols() for problem in problems_of(symbol)]


def sample_names() -> list[str]:
    """What the cases of the sample are called."""
    return [name_of(symbol, problem) for symbol, problem in _sampled()]


def description_of(name: str) -> str:
    """What a case is for; nothing if there is none of this name."""
    for symbol in symbols():
        for problem in problems_of(symbol) if name.startswith(f"{symbol.name}/") else []:
            if name_of(symbol, problem) == name:
                return problem.description
    return ""


def output_elements(found: Case) -> int:
    return sum(numel(tensor, found.values) for tensor in found.symbol.outputs)
