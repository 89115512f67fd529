# SPDX-License-Identifier: Apache-2.0
"""The one table of the ABI: every operator family, its parameters in call order, ranges, dtypes and contract text.

Nothing but facts belongs here; tools/abi/generate.py turns them into the header, the C++ argument blocks and the Python
tables. The order of `parameters` is frozen: it is the order of the C arguments.
"""

from __future__ import annotations

from tools.abi.model import INT32_MAX, HostArray, Operator, Options, Parameter, Scalar, Tensor, Variant

VERSION_OF_LAYOUT = 1

STATUS_CODES: tuple[tuple[str, int, str], ...] = (
    ("OK", 0, "success; the work is enqueued (CUDA) or done (CPU)"),
    ("MISALIGNED_OPERAND", 1, "a data pointer is not aligned to its element, or a workspace not to 16 bytes"),
    ("INVALID_PROBLEM", 2, "a scalar, shape or pointer that is wrong on every backend"),
    ("UNSUPPORTED", 3, "a valid problem that this backend does not do"),
    ("WORKSPACE_TOO_SMALL", 4, "the given workspace is smaller than the workspace_size function answers"),
    ("INTERNAL", 5, "a launch or allocation failed; on CUDA the text carries the runtime's own message"),
)

# Bytes of one element for every dtype token.
DTYPE_BYTES: dict[str, int] = {
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "s8": 1, "u8": 1, "i32": 4, "i64": 8,
    "b8": 1, "b16": 2, "b32": 4, "b64": 8, "b128": 16,
}  # fmt: skip


def _extent(name: str, doc: str) -> Scalar:
    return Scalar(name, "i32", doc, low=0, high=INT32_MAX)


# Float variants of image operators: C is the coordinate type, f32 for the 16-bit types because coordinates do not fit
# in 16 bits.
_IMAGE = tuple(
    Variant(token, {"T": token, "C": coordinate})
    for token, coordinate in (("f32", "f32"), ("f64", "f64"), ("f16", "f32"), ("bf16", "f32"))
)
_COORDINATES = (Variant("f32", {"C": "f32"}), Variant("f64", {"C": "f64"}))
_FLOATS = tuple(Variant(token, {"T": token}) for token in ("f32", "f16", "bf16", "f64"))
_SEGMENT = tuple(
    Variant(infix + token, {"T": token, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for token in ("f32", "f64", "f16", "bf16")
)
_DEQUANTIZE = tuple(
    Variant(f"{token}_{quantized}", {"T": token, "Q": quantized})
    for token in ("f32", "f16", "bf16", "f64")
    for quantized in ("s8", "u8")
)

_BIT_STABLE = (
    "Bit-stable: the same inputs give the same bits on every run, stream, thread count, GPU model and backend. "
)

_ROI_SCALARS: tuple[Parameter, ...] = (
    _extent("n", "images in the batch"),
    _extent("c", "channels"),
    _extent("h", "input height in pixels"),
    _extent("w", "input width in pixels"),
    _extent("num_rois", "boxes"),
    _extent("pooled_h", "bins along y"),
    _extent("pooled_w", "bins along x"),
    Scalar("spatial_scale", "f32", "input pixels per unit of the boxes; finite", finite=True),
    Scalar(
        "sampling_ratio",
        "i32",
        "samples per bin and axis; 0 or negative: adaptive, ceil(box extent / bins)",
        high=2**20,
    ),
    Scalar("aligned", "i32", "1: boxes are shifted by half a pixel; 0: they are at least 1 x 1", low=0, high=1),
)
_ROIS = Tensor("rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by spatial_scale")
_ROI_BAD_DATA = (
    "A box whose batch index, truncated, lies outside [0, n), whose scaled corner, width or height is not finite, or "
    "whose adaptive sample count passes 2^20 on an axis contributes nothing. A sample outside [-1, h] x [-1, w] counts "
    "as 0."
)
_ROI_SOURCE = (
    "torchvision.ops.roi_align (0.26); He et al., Mask R-CNN, 2017. Differs: bad boxes never read out of bounds; "
    "sums are kept in f32 (f64 for f64)."
)

_GRID_SCALARS: tuple[Parameter, ...] = (
    _extent("n", "images in the batch"),
    _extent("c", "channels"),
    _extent("input_h", "input height in pixels"),
    _extent("input_w", "input width in pixels"),
    _extent("output_h", "output height in samples"),
    _extent("output_w", "output width in samples"),
)
_GRID = Tensor(
    "grid",
    "input",
    "C",
    ("n", "output_h", "output_w", "2"),
    "sampling positions (x, y) in [-1, 1], where -1 and 1 are the outer edges of the corner pixels",
)
_GRID_BAD_DATA = (
    "An infinite or far coordinate is outside: it gives 0 and takes no gradient. A NaN coordinate gives a NaN output; "
    "its gradient is dropped and its grad_grid is 0. A tap of weight 0 does not exist, so 0 times infinity cannot leak."
)
_GRID_SOURCE = (
    "torch.nn.functional.grid_sample (2.11), mode bilinear, padding_mode zeros, align_corners false; Jaderberg et al., "
    "Spatial Transformer Networks, 2015."
)

_THETA = ("n", "2", "3")

_PAD_AXES = "rank"
_PAD_SOURCE = "torch.nn.functional.pad, mode constant; numpy.pad, mode constant."
# Padding moves bytes: beside the float types, a token for every width that an element may have.
_MOVED = (*_FLOATS, *(Variant(token, {"T": token}) for token in ("b8", "b16", "b32", "b64", "b128")))
_PAD_LOW = HostArray("pad_low", "i32", _PAD_AXES, "elements before input on each axis", low=0)
_PAD_OUTPUT_SHAPE = HostArray(
    "output_shape", "i32", _PAD_AXES, "extents of output; at least input_shape + pad_low", low=0
)
_PAD_FORWARD: tuple[Parameter, ...] = (
    Scalar("output_numel", "i64", "elements of output; the product of output_shape", low=0),
    Scalar("rank", "i32", "axes; 0 is one element", low=0, high=8),
    HostArray("input_shape", "i32", _PAD_AXES, "extents of input", low=0),
    _PAD_OUTPUT_SHAPE,
    _PAD_LOW,
    HostArray("input_strides", "i64", _PAD_AXES, "strides of input in elements; any"),
    HostArray("output_strides", "i64", _PAD_AXES, "strides of output in elements; not 0 where an extent > 1"),
    Tensor("input", "input", "T", ("input_shape",), "the tensor to pad", strides="input_strides"),
    Tensor("output", "output", "T", ("output_shape",), "the padded tensor", strides="output_strides"),
)
_PAD_BACKWARD_SCALARS: tuple[Parameter, ...] = (
    Scalar("input_numel", "i64", "elements of grad_input; the product of input_shape", low=0),
    Scalar("rank", "i32", "axes; 0 is one element", low=0, high=8),
    HostArray("input_shape", "i32", _PAD_AXES, "extents of grad_input", low=0),
)
_PAD_BACKWARD_STRIDES: tuple[Parameter, ...] = (
    HostArray("grad_output_strides", "i64", _PAD_AXES, "strides of grad_output in elements; any"),
    HostArray("grad_input_strides", "i64", _PAD_AXES, "strides of grad_input in elements; not 0 where an extent > 1"),
)
_PAD_GRAD_OUTPUT = Tensor(
    "grad_output", "input", "T", ("output_shape",), "gradient of the padded tensor", strides="grad_output_strides"
)
_PAD_GRAD_INPUT = Tensor(
    "grad_input", "output", "T", ("input_shape",), "every element is written", strides="grad_input_strides"
)
_PAD_BACKWARD: tuple[Parameter, ...] = (
    *_PAD_BACKWARD_SCALARS,
    _PAD_OUTPUT_SHAPE,
    _PAD_LOW,
    *_PAD_BACKWARD_STRIDES,
    _PAD_GRAD_OUTPUT,
    _PAD_GRAD_INPUT,
)
_PAD_EMPTY = "An input axis without elements: status 2, unless output is empty too."
_PAD_EX_EMPTY = "status 2 for an axis of which none is left, unless output is empty."
_PAD_SUMS = (
    _BIT_STABLE
    + "An element that occurs once in output is copied; else its gradients are added in ascending row-major order of "
    "output, in partial sums of 256 terms."
)
# A mode that repeats the tensor: what stands at position p of an axis of n elements, and who has it.
_PAD_MODES = (
    (
        "reflect",
        "the triangle wave of period 2 (n - 1), which repeats no end: p modulo the period, or the period less that "
        "(n = 1: the element)",
        "torch.nn.functional.pad, mode reflect; numpy.pad, mode reflect. Differs: pads of any width.",
    ),
    (
        "replicate",
        "the nearest end",
        "torch.nn.functional.pad, mode replicate; numpy.pad, mode edge.",
    ),
    (
        "circular",
        "p modulo n",
        "torch.nn.functional.pad, mode circular; numpy.pad, mode wrap. Differs: pads of any width.",
    ),
    (
        "symmetric",
        "the triangle wave of period 2 n, which repeats the ends: p modulo the period, or the period less 1 less that",
        "numpy.pad, mode symmetric. Differs: pads of any width.",
    ),
)


_PAD_MODE_NAMES = ("constant", *(name for name, _, _ in _PAD_MODES))
_PAD_OPTIONS = Options(
    "options",
    "pad_options",
    (
        Scalar(
            "mode",
            "i32",
            ", ".join(f"{number} {name}" for number, name in enumerate(_PAD_MODE_NAMES)),
            low=0,
            high=len(_PAD_MODE_NAMES) - 1,
        ),
        HostArray("value", "VALUE", "1", "the element that constant padding holds; NULL is zero bits"),
    ),
    "The mode of pad_ex, and its value.",
)
_PAD_LOW_OF_ANY_SIGN = HostArray(
    "pad_low", "i32", _PAD_AXES, "elements before input on each axis; a negative number cuts elements off"
)
_PAD_OUTPUT_SHAPE_OF_ANY_SIZE = HostArray(
    "output_shape", "i32", _PAD_AXES,
    "extents of output; what they differ by from input_shape + pad_low is added at the end, or cut off", low=0,
)  # fmt: skip


def _pad_ex(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The parameters with pads of any sign, and options before the tensors."""
    changes = {"pad_low": _PAD_LOW_OF_ANY_SIGN, "output_shape": _PAD_OUTPUT_SHAPE_OF_ANY_SIZE}
    changed = [changes.get(p.name, p) for p in parameters]
    first = next(place for place, p in enumerate(changed) if isinstance(p, Tensor))
    return (*changed[:first], _PAD_OPTIONS, *changed[first:])


def _pad_mode(mode: str, rule: str, source: str) -> tuple[Operator, Operator]:
    """The two operators of a mode that repeats."""
    return (
        Operator(
            name=f"pad_{mode}",
            family="pad",
            summary=f"output at index + pad_low is input; beyond, on each axis, {rule}. Bytes are moved.",
            parameters=_PAD_FORWARD,
            variants=_MOVED,
            empty=f"An empty output: success. {_PAD_EMPTY}",
            bad_data="None: data are bytes.",
            workspace="None.",
            determinism=_BIT_STABLE,
            source=source,
        ),
        Operator(
            name=f"pad_{mode}_backward",
            family="pad",
            summary=f"Gradient of pad_{mode} with respect to its input: the sum of an element's gradients in output.",
            parameters=_PAD_BACKWARD,
            variants=_FLOATS,
            empty=f"An empty grad_input: success, nothing to write. {_PAD_EMPTY}",
            bad_data="NaN and infinity pass through.",
            workspace="None.",
            determinism=_PAD_SUMS,
            source=source,
        ),
    )


_SEGMENT_NUMBERS = (
    *_SEGMENT,
    *(
        Variant(infix + token, {"T": token, "I": index})
        for infix, index in (("", "i32"), ("i64idx_", "i64"))
        for token in ("i32", "i64")
    ),
)
# Ranks are kept in 32 bits, also a little behind the last row.
_MOST_ROWS = INT32_MAX - 256
_NUM_INPUTS = Scalar("num_inputs", "i32", "rows", low=0, high=_MOST_ROWS)
_SEGMENT_ROWS = ("num_inputs", "embedding_dim")
_SEGMENT_RESULTS = ("num_segments", "embedding_dim")
_EVERY_ELEMENT = "every element is written"


class _SegmentForm:
    """How rows name their segments: an operator's name, its scalars and its index, and what is said about them."""

    def __init__(self, prefix: str, family: str, rows: Scalar, index: Tensor, bad_index: str, condition: str) -> None:
        self.prefix = prefix
        self.family = family
        self.scalars: tuple[Parameter, ...] = (
            rows,
            _extent("embedding_dim", "columns"),
            _extent("num_segments", "segments"),
        )
        self.rows = (rows.name, "embedding_dim")
        self.index = index
        self.bad_index = bad_index
        self.condition = condition


_SEGMENT_FORMS = (
    _SegmentForm(
        "unsorted_segment",
        "segment",
        _NUM_INPUTS,
        Tensor("segment_ids", "input", "I", ("num_inputs",), "segment of each row, in any order"),
        "A row whose id lies outside [0, num_segments) is dropped (its gradient is 0). ",
        "rows i with segment_ids[i] = s",
    ),
    _SegmentForm(
        "segment",
        "segment_sorted",
        _NUM_INPUTS,
        Tensor("segment_ids", "input", "I", ("num_inputs",), "segment of each row, never descending"),
        "A row whose id lies outside [0, num_segments) is dropped (its gradient is 0). Ids that descend give "
        "unspecified results, but no access out of bounds. ",
        "rows i with segment_ids[i] = s, in ascending order",
    ),
    _SegmentForm(
        "segment_csr",
        "segment_csr",
        Scalar("num_rows", "i64", "rows", low=0, high=_MOST_ROWS),
        Tensor("offsets", "input", "I", ("num_segments + 1",), "first row of each segment, then the end of the last"),
        "Offsets are clamped to [0, num_rows]; a row before the first or behind the last is dropped (its gradient is "
        "0). Offsets that descend give unspecified results, but no access out of bounds. ",
        "rows i with offsets[s] <= i < offsets[s + 1]",
    ),
)
_SELECTED = "NaN wins over every number, -0 equals +0, and among equals the first row wins."
_SUMMED = "NaN and infinity follow arithmetic."
_IN_PIECES = "A segment's rows ascending in pieces of 256, pieces ascending."
_COPIED = "Bits are copied, NaN payloads and the sign of zero included."
_NOTHING_TO_WRITE = "An empty output: success, nothing to write."
_LOWEST, _HIGHEST = "-infinity (integers: the lowest)", "infinity (integers: the highest)"
_SEGMENT_SOURCE = (
    "jax.ops.segment_max (0.10) for empty segments, tf.math.unsorted_segment_max for the rest. Differs: one row, the "
    "first, takes the whole gradient of a tie."
)


def _segment_operator(
    form: _SegmentForm,
    name: str,
    summary: str,
    tensors: tuple[Tensor, ...],
    *,
    empty: str,
    bad_data: str,
    determinism: str,
    source: str,
    numbers: bool = False,
) -> Operator:
    return Operator(
        name=f"{form.prefix}_{name}",
        family=form.family,
        summary=summary,
        parameters=(*form.scalars, *tensors),
        variants=_SEGMENT_NUMBERS if numbers else _SEGMENT,
        empty=empty,
        bad_data=form.bad_index + bad_data,
        workspace="See the workspace_size function; of the order of the ids or offsets and of a 1/64 of the rows.",
        determinism=_BIT_STABLE + determinism,
        source=source,
        block_file="segment",
    )


def _segment_operators(form: _SegmentForm) -> tuple[Operator, ...]:
    """Every operator of one form; the last tensor of each is its output."""
    rows, results, index = form.rows, _SEGMENT_RESULTS, form.index
    input_ = Tensor("input", "input", "T", rows, "rows")
    output = Tensor("output", "output", "T", results, _EVERY_ELEMENT)
    grad_output = Tensor("grad_output", "input", "T", results, "gradient of the output")
    grad_input = Tensor("grad_input", "output", "T", rows, _EVERY_ELEMENT)
    arg = Tensor("arg", "output", "I", results, "the row that holds each value, -1 for a segment without rows")
    no_rows = f"{_NOTHING_TO_WRITE} A segment without rows is "
    backward_empty = "No rows: success, nothing to write. No segments: grad_input is all zeros."
    where = f"over {form.condition}"
    found = []
    for name, what, identity, says, order, source in (
        ("sum", "sum", "0", _SUMMED, _IN_PIECES, "jax.ops.segment_sum (0.10)."),
        ("mean", "mean", "0", _SUMMED, _IN_PIECES + " Divided by the count.", "tf.math.unsorted_segment_mean."),
        ("max", "max", _LOWEST, _SELECTED, _COPIED, _SEGMENT_SOURCE),
        ("min", "min", _HIGHEST, _SELECTED, _COPIED, "jax.ops.segment_min (0.10)."),
        ("prod", "product", "1", _SUMMED, _IN_PIECES, "jax.ops.segment_prod (0.10)."),
        (
            "logsumexp", "log of the sum of exp", "-infinity", "A segment whose largest value is infinite has it as "
            "result. NaN anywhere gives NaN.", _IN_PIECES + " Each sum is relative to the largest value so far.",
            "torch_scatter.scatter_logsumexp (2.1). Differs: an empty segment is -infinity.",
        ),
    ):  # fmt: skip
        integers = " Sums and products of integers wrap around." if name in ("sum", "prod") else ""
        found.append(
            _segment_operator(
                form, name, f"output[s, d] = {what} {where} of input[i, d].{integers}", (input_, index, output),
                empty=f"{no_rows}{identity}.", bad_data=says, determinism=order, source=source,
                numbers=name in ("sum", "max", "min", "prod"),
            )
        )  # fmt: skip
    for name in ("max", "min"):
        found.append(
            _segment_operator(
                form, f"{name}_with_arg", f"output[s, d] = {name} {where} of input[i, d]; arg[s, d] is its row.",
                (input_, index, output, arg),
                empty=f"{no_rows}{_LOWEST if name == 'max' else _HIGHEST}, its arg -1.", bad_data=_SELECTED,
                determinism=_COPIED, source="torch_scatter.scatter_max (2.1). Differs: the first row of a tie, always.",
                numbers=True,
            )
        )  # fmt: skip
    softmax = Tensor("output", "output", "T", rows, _EVERY_ELEMENT)
    found.append(
        _segment_operator(
            form, "softmax", f"output[i, d] = exp(input[i, d]) over its sum {where}.", (input_, index, softmax),
            empty="No rows: success, nothing to write. Rows without a segment are 0.",
            bad_data="Where the largest value of a segment is infinite, the rows that hold it share 1 equally. NaN "
            "anywhere in a segment's column makes all of it NaN.",
            determinism=_IN_PIECES, source="torch_scatter.scatter_softmax (2.1); torch_geometric.utils.softmax.",
        )
    )  # fmt: skip

    def backward(name: str, summary: str, tensors: tuple[Tensor, ...], says: str, order: str, source: str) -> None:
        found.append(
            _segment_operator(
                form, f"{name}_backward", f"Gradient of {form.prefix}_{name}: {summary}", (*tensors, grad_input),
                empty=backward_empty, bad_data=says, determinism=order, source=source,
            )
        )  # fmt: skip

    backward("sum", "grad_input[i, d] = grad_output[s, d] for the row's segment s.", (grad_output, index), "", _COPIED,
             "The transpose of the sum.")  # fmt: skip
    backward("mean", "grad_input[i, d] = grad_output[s, d] / rows of s, for the row's segment s.",
             (grad_output, index), _SUMMED, "One division, one rounding.", "The transpose of the mean.")  # fmt: skip
    same_rows = Tensor("input", "input", "T", rows, "rows of the forward call")
    for name in ("max", "min"):
        backward(name, f"grad_output[s, d] goes to the first row that holds the {name}imum.",
                 (grad_output, same_rows, index), _SELECTED, _COPIED, _SEGMENT_SOURCE)  # fmt: skip
        backward(f"{name}_even", f"(of {form.prefix}_{name}) grad_output[s, d] goes in equal parts to the rows that "
                 f"hold the {name}imum.", (grad_output, same_rows, index),
                 "NaN wins over every number and equals NaN, -0 equals +0.", "One division by the number of ties, one "
                 "rounding.", "torch.segment_reduce and tf.math.segment_max, whose gradients split ties.")  # fmt: skip
        given = Tensor("arg", "input", "I", results, "of the forward call; what is no row takes nothing")
        backward(f"{name}_with_arg", "grad_output[s, d] goes to row arg[s, d], if that row is of s.",
                 (grad_output, given, index), "", _COPIED, "torch_scatter.scatter_max (2.1).")  # fmt: skip
    same_output = Tensor("output", "input", "T", results, "of the forward call")
    backward("prod", "grad_output[s, d] times the product of the segment's other rows, also where rows are 0.",
             (grad_output, same_rows, Tensor("output", "input", "T", results, "of the forward call; not read, the "
              "products are formed anew"), index), "NaN and infinity follow arithmetic; two zeros or more: 0.",
             _IN_PIECES, "tf.math.segment_prod's gradient.")  # fmt: skip
    backward("logsumexp", "grad_output[s, d] exp(input[i, d] - output[s, d]).",
             (grad_output, same_rows, same_output, index), "Where input and output are equal the factor is 1, also if "
             "both are infinite.", "One exponential, one rounding.", "torch.logsumexp's gradient.")  # fmt: skip
    row_output = Tensor("output", "input", "T", rows, "of the forward call")
    row_gradient = Tensor("grad_output", "input", "T", rows, "gradient of the output")
    backward("softmax", f"output (grad_output - sum of output grad_output {where}).", (row_gradient, row_output, index),
             _SUMMED, _IN_PIECES, "torch.softmax's gradient.")  # fmt: skip
    return tuple(found)


_SEGMENT_GATHER = Operator(
    name="segment_gather",
    family="segment",
    summary="output[i, d] = input[segment_ids[i], d]: the adjoint of unsorted_segment_sum, which is its gradient.",
    parameters=(
        *_SEGMENT_FORMS[0].scalars,
        Tensor("input", "input", "T", _SEGMENT_RESULTS, "a row for each segment"),
        _SEGMENT_FORMS[0].index,
        Tensor("output", "output", "T", _SEGMENT_ROWS, _EVERY_ELEMENT),
    ),
    variants=_SEGMENT,
    empty="No rows: success, nothing to write. No segments: output is all zeros.",
    bad_data="A row whose id lies outside [0, num_segments) is 0.",
    workspace="None.",
    determinism=_BIT_STABLE + _COPIED,
    source="torch.index_select; jax.numpy.take, mode fill.",
    block_file="segment",
)

_SEGMENT_OPTIONS = Options(
    "options",
    "segment_options",
    (
        Scalar(
            "reduce",
            "i32",
            "0 sum, 1 mean, 2 max, 3 min, 4 prod, 5 logsumexp, 6 max with arg, 7 min with arg; 1 and 5 not for i32 "
            "and i64",
            low=0,
            high=7,
        ),
        Scalar("form", "i32", "0 ids in any order, 1 ids that never descend, 2 offsets", low=0, high=2),
        HostArray(
            "empty_value", "VALUE", "1", "the element that a segment without rows is; NULL is the reduction's own"
        ),
    ),
    "The reduction of segment_ex, what names its segments, and what a segment without rows is.",
)
_SEGMENT_EX = Operator(
    name="segment_ex",
    family="segment",
    summary="Any reduction over segments, in any form: unsorted_segment_<reduce>, segment_<reduce>, "
    "segment_csr_<reduce>.",
    parameters=(
        _SEGMENT_FORMS[2].scalars[0],
        *_SEGMENT_FORMS[0].scalars[1:],
        _SEGMENT_OPTIONS,
        Tensor("input", "input", "T", ("num_rows", "embedding_dim"), "rows"),
        Tensor("index", "input", "I", ("num_segments + 1 if form == 2 else num_rows",), "segment_ids or offsets"),
        Tensor("output", "output", "T", _SEGMENT_RESULTS, _EVERY_ELEMENT),
        Tensor(
            "arg", "output", "I", ("num_segments if reduce >= 6 else 0", "embedding_dim"),
            "the row that holds each value, -1 for a segment without rows",
        ),
    ),
    variants=_SEGMENT_NUMBERS,
    empty=f"{_NOTHING_TO_WRITE} A segment without rows, or whose rows are all dropped, is empty_value, bit for bit.",
    bad_data="As the operator of that name.",
    workspace="See the workspace_size function; of the order of the ids or offsets and of a 1/64 of the rows.",
    determinism=_BIT_STABLE + "The bits of the operator of that name wherever a segment has rows.",
    source="Ours. The initial value of torch.segment_reduce (2.13) takes part in every segment; torch_scatter has 0.",
    block_file="segment",
)  # fmt: skip

_CHANNEL_SCALARS: tuple[Parameter, ...] = (
    Scalar("numel", "i64", "elements; the product of shape", low=0),
    HostArray("shape", "i32", "4", "extents, outermost first, lower ranks padded with 1", low=0),
    Scalar("axis", "i32", "the channel axis within shape", low=0, high=3),
)

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="roi_align",
        family="roi_align",
        summary=(
            "Average of bilinear samples in every bin of every box: output[r, c] = A X B^T with per-axis weights A, B "
            "(torchvision's definition, factored)."
        ),
        parameters=(
            *_ROI_SCALARS,
            Tensor("input", "input", "T", ("n", "c", "h", "w"), "feature maps"),
            _ROIS,
            Tensor("output", "output", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "one value per bin"),
        ),
        variants=_IMAGE,
        empty="Zero boxes, channels or bins: success, nothing to write. h = 0 or w = 0: output is 0.",
        bad_data=_ROI_BAD_DATA,
        workspace="See the workspace_size function; boxes' weight tables only, never of the order of the images.",
        determinism=_BIT_STABLE + "Rows ascending inside, columns ascending outside, each a chain of fma.",
        source=_ROI_SOURCE,
    ),
    Operator(
        name="roi_align_backward",
        family="roi_align",
        summary="Gradient of roi_align with respect to its input: grad_input = sum over boxes of A^T G B.",
        parameters=(
            *_ROI_SCALARS,
            Tensor("grad_output", "input", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "gradient of the bins"),
            _ROIS,
            Tensor("grad_input", "output", "T", ("n", "c", "h", "w"), "every element is written, also the zeros"),
        ),
        variants=_IMAGE,
        empty="Zero boxes or bins: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_ROI_BAD_DATA,
        workspace="See the workspace_size function: boxes' weight tables and, on CUDA, a bit per box and tile of "
        "pixels (at most 64 MiB) and, for maps so small that their sums are cut, one partial plane a block of boxes.",
        determinism=_BIT_STABLE
        + "A pixel owns its sum: boxes ascending in blocks fixed by the shapes, then pw, then ph.",
        source=_ROI_SOURCE,
    ),
    Operator(
        name="grid_sample_2d",
        family="grid_sample",
        summary="Bilinear samples of input at the grid's positions: output[n, c, i, j] = input[n, c] at grid[n, i, j].",
        parameters=(
            *_GRID_SCALARS,
            Tensor("input", "input", "T", ("n", "c", "input_h", "input_w"), "images"),
            _GRID,
            Tensor("output", "output", "T", ("n", "c", "output_h", "output_w"), "samples"),
        ),
        variants=_IMAGE,
        empty="An empty output: success. input_h = 0 or input_w = 0: output is 0 (NaN at NaN coordinates).",
        bad_data=_GRID_BAD_DATA,
        workspace="None.",
        determinism=_BIT_STABLE + "Taps in order (y0 x0), (y0 x1), (y1 x0), (y1 x1).",
        source=_GRID_SOURCE,
    ),
    Operator(
        name="grid_sample_2d_backward",
        family="grid_sample",
        summary="Gradients of grid_sample_2d with respect to its input and to its grid.",
        parameters=(
            *_GRID_SCALARS,
            Tensor("grad_output", "input", "T", ("n", "c", "output_h", "output_w"), "gradient of the samples"),
            Tensor("input", "input", "T", ("n", "c", "input_h", "input_w"), "images of the forward call"),
            _GRID,
            Tensor("grad_input", "output", "T", ("n", "c", "input_h", "input_w"), "every element is written"),
            Tensor("grad_grid", "output", "C", ("n", "output_h", "output_w", "2"), "every element is written"),
        ),
        variants=_IMAGE,
        empty="No samples: grad_input is all zeros. c = 0: grad_grid is all zeros.",
        bad_data=_GRID_BAD_DATA,
        workspace="See the workspace_size function; of the order of the grid's index data, never of n times c.",
        determinism=_BIT_STABLE
        + "A pixel owns its sum: samples ascending, taps in order, partial sums of 256 terms; grad_grid sums channels "
        "ascending in partial sums of 64.",
        source=_GRID_SOURCE,
    ),
    Operator(
        name="affine_grid_2d",
        family="affine_grid",
        summary="Sampling positions of an affine map: grid[n, i, j] = theta[n] (x_j, y_i, 1), x_j = (2 j + 1) / w - 1.",
        parameters=(
            _extent("n", "maps in the batch"),
            _extent("output_h", "grid height in samples"),
            _extent("output_w", "grid width in samples"),
            Tensor("theta", "input", "C", _THETA, "affine maps, rows (x, y), columns (x, y, 1)"),
            Tensor("grid", "output", "C", ("n", "output_h", "output_w", "2"), "positions (x, y)"),
        ),
        variants=_COORDINATES,
        empty="An empty grid: success, nothing to write.",
        bad_data="theta is data: NaN and infinity pass through.",
        workspace="None.",
        determinism=_BIT_STABLE + "fma(t1, y, fma(t0, x, t2)).",
        source="torch.nn.functional.affine_grid (2.11), align_corners false; its last bit may differ from ours.",
    ),
    Operator(
        name="affine_grid_2d_backward",
        family="affine_grid",
        summary="Gradient of affine_grid_2d with respect to theta: a sum over the grid's samples.",
        parameters=(
            _extent("n", "maps in the batch"),
            _extent("output_h", "grid height in samples"),
            _extent("output_w", "grid width in samples"),
            Tensor("grad_grid", "input", "C", ("n", "output_h", "output_w", "2"), "gradient of the positions"),
            Tensor("grad_theta", "output", "C", _THETA, "every element is written"),
        ),
        variants=_COORDINATES,
        empty="No samples: grad_theta is all zeros. n = 0: success, nothing to write.",
        bad_data="grad_grid is data: NaN and infinity pass through.",
        workspace="See the workspace_size function: one partial sum per 256 samples.",
        determinism=_BIT_STABLE + "Samples ascending in partial sums of 256 terms, partial sums ascending.",
        source="torch.nn.functional.affine_grid (2.11), align_corners false.",
    ),
    Operator(
        name="pad_constant",
        family="pad",
        summary="output is value everywhere but at index + pad_low, where it is input. Bytes are moved, never rounded.",
        parameters=(
            *_PAD_FORWARD,
            Scalar("value", "VALUE", "what the padding holds; 16-bit types and b8 to b128 pass their bit pattern"),
        ),
        variants=_MOVED,
        empty="An empty output: success. An empty input: output is all value.",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=_BIT_STABLE,
        source=_PAD_SOURCE,
    ),
    Operator(
        name="pad_constant_backward",
        family="pad",
        summary="Gradient of pad_constant with respect to its input: grad_input[i] = grad_output[i + pad_low], a copy.",
        parameters=(
            *_PAD_BACKWARD_SCALARS,
            _PAD_LOW,
            *_PAD_BACKWARD_STRIDES,
            Tensor(
                "grad_output",
                "input",
                "T",
                ("input_shape + pad_low",),
                "gradient of the padded tensor; extents at least input_shape + pad_low",
                strides="grad_output_strides",
            ),
            _PAD_GRAD_INPUT,
        ),
        variants=_FLOATS,
        empty="An empty grad_input: success, nothing to write.",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=_BIT_STABLE,
        source=_PAD_SOURCE,
    ),
    *(operator for mode in _PAD_MODES for operator in _pad_mode(*mode)),
    Operator(
        name="pad_ex",
        family="pad",
        summary="pad_<mode> with pads of any sign: first what they cut off goes, then the rest is padded.",
        parameters=_pad_ex(_PAD_FORWARD),
        variants=_MOVED,
        empty=f"An empty output: success. Mode 0, nothing left of input: all value. Other modes: {_PAD_EX_EMPTY}",
        bad_data="None: data are bytes.",
        workspace="None.",
        determinism=_BIT_STABLE,
        source="As the pad_<mode>. torch.nn.functional.pad, mode reflect, reflects what its negative pads cut off.",
    ),
    Operator(
        name="pad_ex_backward",
        family="pad",
        summary="Gradient of pad_ex with respect to its input: 0 for what was cut off, else as pad_<mode>_backward.",
        parameters=_pad_ex(_PAD_BACKWARD),
        variants=_FLOATS,
        empty=f"An empty grad_input: success, nothing to write. Modes other than 0: {_PAD_EX_EMPTY}",
        bad_data="NaN and infinity pass through.",
        workspace="None.",
        determinism=_PAD_SUMS,
        source="As the pad_<mode>.",
    ),
    *(operator for form in _SEGMENT_FORMS for operator in _segment_operators(form)),
    _SEGMENT_GATHER,
    _SEGMENT_EX,
    Operator(
        name="dequantize_per_channel",
        family="dequantize",
        summary="output = (input - zero_point[channel]) * scale[channel], one multiplication, one rounding.",
        parameters=(
            *_CHANNEL_SCALARS,
            Tensor("input", "input", "Q", ("shape",), "quantized values"),
            Tensor("scale", "input", "T", ("shape[axis]",), "scale of each channel"),
            Tensor("zero_point", "input", "i32", ("shape[axis]",), "zero point of each channel"),
            Tensor("output", "output", "T", ("shape",), "every element is written"),
        ),
        variants=_DEQUANTIZE,
        empty="No elements: success, nothing to write.",
        bad_data="scale and zero_point are data: NaN, infinity and zero pass through.",
        workspace="None.",
        determinism=_BIT_STABLE,
        source="ONNX DequantizeLinear (opset 21), axis form; torch.dequantize of a per-channel tensor.",
    ),
    Operator(
        name="dequantize_per_channel_backward",
        family="dequantize",
        summary="Gradient of dequantize_per_channel with respect to its input: grad_output * scale[channel].",
        parameters=(
            *_CHANNEL_SCALARS,
            Tensor("scale", "input", "T", ("shape[axis]",), "scale of each channel"),
            Tensor("grad_output", "input", "T", ("shape",), "gradient of the dequantized values"),
            Tensor("grad_input", "output", "T", ("shape",), "every element is written"),
        ),
        variants=_FLOATS,
        empty="No elements: success, nothing to write.",
        bad_data="scale is data: NaN, infinity and zero pass through.",
        workspace="None.",
        determinism=_BIT_STABLE,
        source="ONNX DequantizeLinear (opset 21), axis form; its derivative.",
        overlap="grad_input may be grad_output itself; no other overlap.",
    ),
)
