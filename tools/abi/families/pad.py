# SPDX-License-Identifier: Apache-2.0
"""Padding in every mode and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, HostArray, Operator, Options, Parameter, Scalar, Tensor, Variant

_AXES = "rank"
_SOURCE = "torch.nn.functional.pad (2.13), mode constant; numpy.pad (2.4), mode constant."
# Padding moves bytes: beside the float types, a token for every width that an element may have.
_MOVED = (*FLOATS, *(Variant(token, {"T": token}) for token in ("b8", "b16", "b32", "b64", "b128")))
_LOW = HostArray("pad_low", "i32", _AXES, "elements before input on each axis", low=0)
_OUTPUT_SHAPE = HostArray("output_shape", "i32", _AXES, "extents of output; at least input_shape + pad_low", low=0)
_FORWARD: tuple[Parameter, ...] = (
    Scalar("output_numel", "i64", "elements of output; the product of output_shape", low=0),
    Scalar("rank", "i32", "axes; 0 is one element", low=0, high=8),
    HostArray("input_shape", "i32", _AXES, "extents of input", low=0),
    _OUTPUT_SHAPE,
    _LOW,
    HostArray("input_strides", "i64", _AXES, "strides of input in elements; any"),
    HostArray("output_strides", "i64", _AXES, "strides of output in elements; no two elements in one place"),
    Tensor("input", "input", "T", ("input_shape",), "the tensor to pad", strides="input_strides"),
    Tensor("output", "output", "T", ("output_shape",), "the padded tensor", strides="output_strides"),
)
_BACKWARD_SCALARS: tuple[Parameter, ...] = (
    Scalar("input_numel", "i64", "elements of grad_input; the product of input_shape", low=0),
    Scalar("rank", "i32", "axes; 0 is one element", low=0, high=8),
    HostArray("input_shape", "i32", _AXES, "extents of grad_input", low=0),
)
_BACKWARD_STRIDES: tuple[Parameter, ...] = (
    HostArray("grad_output_strides", "i64", _AXES, "strides of grad_output in elements; any"),
    HostArray("grad_input_strides", "i64", _AXES, "strides of grad_input in elements; no two elements in one place"),
)
_GRAD_OUTPUT = Tensor(
    "grad_output", "input", "T", ("output_shape",), "gradient of the padded tensor", strides="grad_output_strides"
)
_GRAD_INPUT = Tensor(
    "grad_input", "output", "T", ("input_shape",), "every element is written", strides="grad_input_strides"
)
_BACKWARD: tuple[Parameter, ...] = (
    *_BACKWARD_SCALARS,
    _OUTPUT_SHAPE,
    _LOW,
    *_BACKWARD_STRIDES,
    _GRAD_OUTPUT,
    _GRAD_INPUT,
)
_EMPTY = "An input axis without elements: status 2, unless output is empty too."
_EX_EMPTY = "status 2 for an axis of which none is left, unless output is empty."
_SUMS = (
    BIT_STABLE
    + "An element that occurs once in output is copied; else its gradients are added in ascending row-major order of "
    "output, in partial sums of 256 terms."
)
# A mode that repeats the tensor: what stands at position p of an axis of n elements, and who has it.
_MODES = (
    (
        "reflect",
        "the triangle wave of period 2 (n - 1), which repeats no end: p modulo the period, or the period less that "
        "(n = 1: the element)",
        "torch.nn.functional.pad (2.13), mode reflect; numpy.pad (2.4), mode reflect. Differs: pads of any width.",
    ),
    (
        "replicate",
        "the nearest end",
        "torch.nn.functional.pad (2.13), mode replicate; numpy.pad (2.4), mode edge.",
    ),
    (
        "circular",
        "p modulo n",
        "torch.nn.functional.pad (2.13), mode circular; numpy.pad (2.4), mode wrap. Differs: pads of any width.",
    ),
    (
        "symmetric",
        "the triangle wave of period 2 n, which repeats the ends: p modulo the period, or the period less 1 less that",
        "numpy.pad (2.4), mode symmetric; torch.nn.functional.pad has none.",
    ),
)


_MODE_NAMES = ("constant", *(name for name, _, _ in _MODES))
_OPTIONS = Options(
    "options",
    "pad_options",
    (
        Scalar(
            "mode",
            "i32",
            ", ".join(f"{number} {name}" for number, name in enumerate(_MODE_NAMES)),
            low=0,
            high=len(_MODE_NAMES) - 1,
        ),
        HostArray("value", "VALUE", "1", "the element that constant padding holds; NULL is zero bits"),
    ),
    "The mode of pad_ex, and its value.",
)
_LOW_OF_ANY_SIGN = HostArray(
    "pad_low", "i32", _AXES, "elements before input on each axis; a negative number cuts elements off"
)
_OUTPUT_SHAPE_OF_ANY_SIZE = HostArray(
    "output_shape", "i32", _AXES,
    "extents of output; what they differ by from input_shape + pad_low is added at the end, or cut off", low=0,
)  # fmt: skip


def _ex(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The parameters with pads of any sign, and options before the tensors."""
    changes = {"pad_low": _LOW_OF_ANY_SIGN, "output_shape": _OUTPUT_SHAPE_OF_ANY_SIZE}
    changed = [changes.get(p.name, p) for p in parameters]
    first = next(place for place, p in enumerate(changed) if isinstance(p, Tensor))
    return (*changed[:first], _OPTIONS, *changed[first:])


def _mode(mode: str, rule: str, source: str) -> tuple[Operator, Operator]:
    """The two operators of a mode that repeats."""
    return (
        Operator(
            name=f"pad_{mode}",
            family="pad",
            summary=f"output at index + pad_low is input; beyond, on each axis, {rule}. Bytes are moved.",
            parameters=_FORWARD,
            variants=_MOVED,
            empty=f"An empty output: success. {_EMPTY}",
            bad_data="None: data are bytes.",
            workspace="None.",
            determinism=BIT_STABLE,
            source=source,
        ),
        Operator(
            name=f"pad_{mode}_backward",
            family="pad",
            summary=f"Gradient of pad_{mode} with respect to its input: the sum of an element's gradients in output.",
            parameters=_BACKWARD,
            variants=FLOATS,
            empty=f"An empty grad_input: success, nothing to write. {_EMPTY}",
            bad_data="NaN and infinity pass through.",
            workspace="None.",
            determinism=_SUMS,
            source=source,
        ),
    )


ORDER = 40
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="pad_constant",
        family="pad",
        summary="output is value everywhere but at index + pad_low, where it is input. Bytes are moved, never rounded.",
        parameters=(
            *_FORWARD,
            Scalar("value", "VALUE", "what the padding holds; 16-bit types and b8 to b128 pass their bit pattern"),
        ),
        variants=_MOVED,
        empty="An empty output: success. An empty input: output is all value.",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=BIT_STABLE,
        source=_SOURCE,
    ),
    Operator(
        name="pad_constant_backward",
        family="pad",
        summary="Gradient of pad_constant with respect to its input: grad_input[i] = grad_output[i + pad_low], a copy.",
        parameters=(
            *_BACKWARD_SCALARS,
            _LOW,
            *_BACKWARD_STRIDES,
            Tensor(
                "grad_output",
                "input",
                "T",
                ("input_shape + pad_low",),
                "gradient of the padded tensor; extents at least input_shape + pad_low",
                strides="grad_output_strides",
            ),
            _GRAD_INPUT,
        ),
        variants=FLOATS,
        empty="An empty grad_input: success, nothing to write.",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=BIT_STABLE,
        source=_SOURCE,
    ),
    *(operator for mode in _MODES for operator in _mode(*mode)),
    Operator(
        name="pad_ex",
        family="pad",
        summary="pad_<mode> with pads of any sign: first what they cut off goes, then the rest is padded.",
        parameters=_ex(_FORWARD),
        variants=_MOVED,
        empty=f"An empty output: success. Mode 0, nothing left of input: all value. Other modes: {_EX_EMPTY}",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=BIT_STABLE,
        source="As the pad_<mode>. torch.nn.functional.pad (2.13), mode reflect, reflects what its pads cut off.",
    ),
    Operator(
        name="pad_ex_backward",
        family="pad",
        summary="Gradient of pad_ex with respect to its input: 0 for what was cut off, else as pad_<mode>_backward.",
        parameters=_ex(_BACKWARD),
        variants=FLOATS,
        empty=f"An empty grad_input: success, nothing to write. Modes other than 0: {_EX_EMPTY}",
        bad_data="NaN and infinity pass through.",
        workspace="None.",
        determinism=_SUMS,
        source="As the pad_<mode>.",
    ),
)
