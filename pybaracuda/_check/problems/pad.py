# SPDX-License-Identifier: Apache-2.0
"""The problems of padding in every mode, and of its gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, any_bits, special, wide
from ..problem import TENTH, Family, Problem


def _pad(shape: list[int], low: list[int], high: list[int], **strides: list[int]) -> Values:
    padded = [extent + before + after for extent, before, after in zip(shape, low, high, strict=True)]
    return {"rank": len(shape), "input_shape": shape, "pad_low": low, "output_shape": padded, **strides}


_BITS: dict[str, Maker] = {"input": any_bits, "grad_output": any_bits}
_CONSTANT = [
    Problem("typical", "a batch of images padded on two axes", _pad([2, 3, 9, 11], [0, 0, 1, 2], [0, 0, 3, 0])),
    Problem("rank-8", "eight axes", _pad([2, 1, 2, 3, 1, 2, 1, 3], [0, 1, 0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0, 1, 0])),
    Problem("rank-0", "one element", _pad([], [], [])),
    Problem("nothing-but-padding", "an empty input", _pad([0, 3], [2, 1], [3, 1])),
    Problem("long-pads", "pads wider than the input", _pad([3, 5], [10, 70], [33, 4])),
    Problem("special", "every kind of bit pattern moves unchanged", _pad([3, 7, 13], [1, 0, 5], [0, 2, 4]), _BITS),
    Problem("parallel", "enough work for several threads", _pad([3, 150, 170], [0, 1, 3], [0, 2, 1]), _BITS),
    # The padded tensor's rows lie 9 apart and its columns are contiguous; the other one is transposed, or has gaps.
    Problem("strided", "transposed input, rows of the output apart",
            _pad([4, 6], [1, 0], [0, 2], input_strides=[1, 4], grad_input_strides=[1, 4], output_strides=[9, 1],
                 grad_output_strides=[9, 1]), _BITS),
    Problem("strides-apart", "every second element, rows backwards where they are read",
            _pad([3, 5], [1, 2], [0, 1], input_strides=[-11, 2], grad_input_strides=[13, 2], output_strides=[20, 2],
                 grad_output_strides=[-20, 2]), _BITS),
    Problem("broadcast", "an input read with stride 0",
            _pad([3, 5], [0, 1], [1, 1], input_strides=[0, 1], grad_output_strides=[0, 1]), _BITS),
    Problem("subnormal-value", "padding with a subnormal number", _pad([3, 7], [1, 2], [0, 3]), subnormal=True),
]  # fmt: skip


# The modes that repeat the input. Where an element has several gradients they are added, 256 at a time.
_REPEATED_WIDE: dict[str, Maker] = {"input": any_bits, "grad_output": wide}
_REPEATED_BITS: dict[str, Maker] = {"input": any_bits, "grad_output": special}
_REPEATED = [
    Problem("typical", "a batch of images padded on two axes", _pad([2, 3, 9, 11], [0, 0, 1, 2], [0, 0, 3, 0]),
            _REPEATED_WIDE),
    Problem("rank-8", "eight axes", _pad([2, 2, 3, 2, 1, 2, 3, 3], [0, 1, 0, 1, 2, 0, 2, 1], [1, 0, 1, 0, 1, 0, 1, 0]),
            _REPEATED_WIDE),
    Problem("rank-0", "one element", _pad([], [], [])),
    Problem("maximal", "every element but the ends has an image on either side", _pad([5, 7, 6], [0, 6, 5], [0, 6, 5]),
            _REPEATED_WIDE),
    Problem("several-periods", "pads several times as wide as the input", _pad([2, 3, 5], [0, 10, 70], [0, 33, 4]),
            _REPEATED_WIDE),
    *(
        Problem(f"list-of-{low + 1 + high}", f"one element with exactly {low + 1 + high} terms",
                _pad([3, 1], [0, low], [0, high]), _REPEATED_WIDE)
        for low, high in ((100, 154), (255, 0), (0, 256), (256, 256))
    ),
    Problem("two-axes-of-one", "lists of 17 x 31 terms", _pad([1, 2, 1], [16, 0, 11], [0, 0, 19]), _REPEATED_WIDE),
    Problem("small-planes", "many planes of 7 x 7", _pad([83, 7, 7], [0, 1, 1], [0, 1, 1]), _REPEATED_WIDE),
    Problem("whole-rows", "planes whose rows are whole vectors", _pad([3, 6, 24], [0, 1, 3], [0, 2, 4]),
            _REPEATED_WIDE),
    Problem("whole-rows-special", "the same with NaN payloads, infinities and zeros, one wide",
            _pad([2, 5, 16], [0, 1, 1], [0, 1, 1]), _REPEATED_BITS),
    Problem("pairs", "two elements an axis: a mirror image is a period away", _pad([9, 2, 2], [0, 1, 3], [0, 2, 0]),
            _REPEATED_WIDE),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _pad([3, 7, 13], [1, 0, 5], [0, 2, 4]),
            _REPEATED_BITS),
    Problem("parallel", "enough work for several threads", _pad([3, 150, 170], [0, 1, 3], [0, 2, 3]),
            _REPEATED_WIDE),
    Problem("unpadded", "no axis is padded: nothing is added", _pad([4, 5], [0, 0], [0, 0]), _BITS),
    Problem("strided", "transposed input, rows of the output apart",
            _pad([4, 6], [1, 2], [0, 2], input_strides=[1, 4], grad_input_strides=[1, 4], output_strides=[11, 1],
                 grad_output_strides=[11, 1]), _REPEATED_WIDE),
    Problem("strides-apart", "every second element, rows backwards where they are read",
            _pad([3, 5], [1, 2], [0, 1], input_strides=[-11, 2], grad_input_strides=[13, 2], output_strides=[20, 2],
                 grad_output_strides=[-20, 2]), _REPEATED_WIDE),
    Problem("broadcast", "an input read with stride 0",
            _pad([3, 5], [0, 1], [1, 1], input_strides=[0, 1], grad_output_strides=[0, 1]), _REPEATED_WIDE),
]  # fmt: skip

# Modes in the order of the numbers that the options give them.
_MODES = ("constant", "reflect", "replicate", "circular", "symmetric")
_EX = [
    *(
        Problem(f"crop-and-pad-{name}", f"mode {name}, pads of both signs on every axis",
                {**_pad([3, 8, 9], [0, -2, 4], [-1, 3, -3]), "mode": number}, _REPEATED_WIDE)
        for number, name in enumerate(_MODES)
    ),
    *(
        Problem(f"several-periods-{name}", f"mode {name}, pads wider than what is left",
                {**_pad([4, 9], [0, -5], [-1, 23]), "mode": number}, _REPEATED_WIDE)
        for number, name in enumerate(_MODES)
    ),
    Problem("subnormal-value", "padding with a subnormal number", {**_pad([3, 7], [1, -2], [0, 3]), "mode": 0},
            subnormal=True),
    Problem("crop", "nothing is added", {**_pad([6, 7], [-1, -2], [-2, -3]), "mode": 1}, _BITS),
    Problem("crop-all", "nothing is left", {**_pad([3, 4], [-1, 0], [-2, 0]), "mode": 2}),
    Problem("crop-all-then-pad", "nothing is left to see", {**_pad([3, 4], [-3, 1], [2, 0]), "mode": 0}),
]  # fmt: skip

# The padding value by dtype: a NaN with a payload for the 16-bit types (a bit pattern), a plain number otherwise.
_VALUES = {
    "f32": TENTH, "f64": 0.1, "f16": 0x7D23, "bf16": 0xFF91, "b8": 0x9C, "b16": 0x8001, "b32": 0xFFA00001,
    "b64": 0xFFF0000000000123, "b128": 0xFEDCBA98765432100123456789ABCDEF,
}  # fmt: skip

FAMILY = Family(
    {
        "pad": _REPEATED,
        "pad_constant": _CONSTANT,
        "pad_constant_backward": _CONSTANT,
        "pad_ex": _EX,
        "pad_ex_backward": _EX,
    },
    elements={"value": _VALUES},
)
