# SPDX-License-Identifier: Apache-2.0
"""Segment reductions in three forms of an index, their gradients and the gather, as the ABI states them.

An operator is a row of the tables below; each stands once for every form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.abi.model import (
    BIT_STABLE,
    INT32_MAX,
    HostArray,
    Operator,
    Options,
    Parameter,
    Scalar,
    Tensor,
    Variant,
    extent,
)


def _pairs(tokens: tuple[str, ...]) -> tuple[Variant, ...]:
    """Elements of each dtype with an index of either width."""
    return tuple(
        Variant(infix + token, {"T": token, "I": index})
        for infix, index in (("", "i32"), ("i64idx_", "i64"))
        for token in tokens
    )


_FLOATS = _pairs(("f32", "f64", "f16", "bf16"))
_NUMBERS = (*_FLOATS, *_pairs(("i32", "i64")))

# Ranks are kept in 32 bits, also a little behind the last row.
_MOST_ROWS = INT32_MAX - 256
_NUM_INPUTS = Scalar("num_inputs", "i32", "rows", low=0, high=_MOST_ROWS)
_RESULT_SHAPE = ("num_segments", "embedding_dim")
_WRITTEN = "every element is written"
# What _workspace_size answers at most; tests/test_workspace.py holds both libraries to it.
_PARTS = (
    "and, if there are more rows than that, for every 256 or part of them two partial results of each column, of at "
    "most 8 bytes (f64, i64: 16); of maxima, minima and integers for every 32 rows, as long as that is at most 16 MiB "
    "and 16 bytes a row"
)
_UNSORTED_WORKSPACE = f"At most 18 bytes a row, 4 a segment and 64 KiB {_PARTS}."
_SORTED_WORKSPACE = f"At most 8 bytes a row, 4 a segment and 128 {_PARTS}."
_COUNTS_WORKSPACE = "4 bytes a segment."
_FROZEN_WORKSPACE = " One of at least 4 bytes a segment that is too small is taken for none: frozen callers give that."
_IDS_BAD_DATA = "A row whose id lies outside [0, num_segments) is dropped (its gradient is 0). "


@dataclass(frozen=True)
class _Form:
    """How rows name their segments: what an operator's name begins with, its row count and index, and what is said."""

    prefix: str
    family: str
    rows: Scalar
    index: Tensor
    bad_data: str
    condition: str
    workspace: str

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        return (self.rows, extent("embedding_dim", "columns"), extent("num_segments", "segments"))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a row of the tables may name; `given` and `same` are what a forward call had."""
        rows = (self.rows.name, "embedding_dim")
        tensors = {
            "input": Tensor("input", "input", "T", rows, "rows"),
            "output": Tensor("output", "output", "T", _RESULT_SHAPE, _WRITTEN),
            "output rows": Tensor("output", "output", "T", rows, _WRITTEN),
            "arg": Tensor(
                "arg", "output", "I", _RESULT_SHAPE, "the row that holds each value, -1 for a segment without rows"
            ),
            "grad_output": Tensor("grad_output", "input", "T", _RESULT_SHAPE, "gradient of the output"),
            "grad_output rows": Tensor("grad_output", "input", "T", rows, "gradient of the output"),
            "same input": Tensor("input", "input", "T", rows, "rows of the forward call"),
            "given output": Tensor("output", "input", "T", _RESULT_SHAPE, "of the forward call"),
            "unread output": Tensor(
                "output", "input", "T", _RESULT_SHAPE,
                "of the forward call; not read, the products are formed anew",
            ),
            "given output rows": Tensor("output", "input", "T", rows, "of the forward call"),
            "given arg": Tensor(
                "arg", "input", "I", _RESULT_SHAPE, "of the forward call; what is no row takes nothing"
            ),
            "grad_input": Tensor("grad_input", "output", "T", rows, _WRITTEN),
        }  # fmt: skip
        return {**tensors, "index": self.index}


_FORMS = (
    _Form(
        "unsorted_segment",
        "segment",
        _NUM_INPUTS,
        Tensor("segment_ids", "input", "I", ("num_inputs",), "segment of each row, in any order"),
        _IDS_BAD_DATA,
        "rows i with segment_ids[i] = s",
        _UNSORTED_WORKSPACE,
    ),
    _Form(
        "segment",
        "segment_sorted",
        _NUM_INPUTS,
        Tensor("segment_ids", "input", "I", ("num_inputs",), "segment of each row, never descending"),
        _IDS_BAD_DATA + "Ids that descend give unspecified results, but no access out of bounds. ",
        "rows i with segment_ids[i] = s, in ascending order",
        _SORTED_WORKSPACE,
    ),
    _Form(
        "segment_csr",
        "segment_csr",
        Scalar("num_rows", "i64", "rows", low=0, high=_MOST_ROWS),
        Tensor("offsets", "input", "I", ("num_segments + 1",), "first row of each segment, then the end of the last"),
        "Offsets are clamped to [0, num_rows]; a row before the first or behind the last is dropped (its gradient is "
        "0). Offsets that descend give unspecified results, but no access out of bounds. ",
        "rows i with offsets[s] <= i < offsets[s + 1]",
        _SORTED_WORKSPACE,
    ),
)


# Gradients of which a row's needs no other row.
_OF_ONE_ROW = ("sum_backward", "max_with_arg_backward", "min_with_arg_backward")


@dataclass(frozen=True)
class _Row:
    """One operator in every form: `tensors` in call order; {prefix} and {condition} in a text are the form's."""

    name: str
    summary: str
    tensors: str
    empty: str
    bad_data: str
    determinism: str
    source: str
    variants: tuple[Variant, ...] = _FLOATS

    def of(self, form: _Form) -> Operator:
        tensors = form.tensors
        return Operator(
            name=f"{form.prefix}_{self.name}",
            family=form.family,
            summary=self.summary.format(prefix=form.prefix, condition=form.condition),
            parameters=(*form.scalars, *(tensors[name] for name in self.tensors.split(", "))),
            variants=self.variants,
            empty=self.empty,
            bad_data=form.bad_data + self.bad_data,
            workspace=self._workspace(form),
            determinism=BIT_STABLE + self.determinism,
            source=self.source,
            folder="segment",
        )

    def _workspace(self, form: _Form) -> str:
        counts = form.family != "segment_csr"
        if self.name in _OF_ONE_ROW or (self.name == "mean_backward" and not counts):
            return "None."
        if self.name == "logsumexp_backward":
            return f"None in f32 and f64. In f16 and bf16: {form.workspace}"
        most = _COUNTS_WORKSPACE if self.name == "mean_backward" else form.workspace
        return most + _FROZEN_WORKSPACE if counts and self.name in ("mean", "mean_backward") else most


_SELECTED = "NaN wins over every number, -0 equals +0, and among equals the first row wins."
_SUMMED = "NaN and infinity follow arithmetic."
_IN_PIECES = "A segment's rows ascending in pieces of 256, pieces ascending."
_LOWEST, _HIGHEST = "-infinity (integers: the lowest)", "infinity (integers: the highest)"
_COPIED = "Bits are copied, NaN payloads and the sign of zero included."
_MAX_SOURCE = (
    "jax.ops.segment_max (0.10) for empty segments, tf.math.unsorted_segment_max for the rest. Differs: one row, the "
    "first, takes the whole gradient of a tie."
)


def _reduction(
    name: str,
    what: str,
    identity: str,
    bad_data: str,
    determinism: str,
    source: str,
    variants: tuple[Variant, ...] = _FLOATS,
) -> _Row:
    """A row with one result for each segment; `identity` is that of a segment without rows."""
    integers = " Sums and products of integers wrap around." if name in ("sum", "prod") else ""
    return _Row(
        name=name,
        summary=f"output[s, d] = {what} over {{condition}} of input[i, d].{integers}",
        tensors="input, index, output",
        empty=f"An empty output: success, nothing to write. A segment without rows is {identity}.",
        bad_data=bad_data,
        determinism=determinism,
        source=source,
        variants=variants,
    )


def _selection(name: str, identity: str) -> _Row:
    """A maximum or minimum that also says which row it is."""
    return _Row(
        name=f"{name}_with_arg",
        summary=f"output[s, d] = {name} over {{condition}} of input[i, d]; arg[s, d] is its row.",
        tensors="input, index, output, arg",
        empty=f"An empty output: success, nothing to write. A segment without rows is {identity}, its arg -1.",
        bad_data=_SELECTED,
        determinism=_COPIED,
        source="torch_scatter.scatter_max (2.1). Differs: the first row of a tie, always.",
        variants=_NUMBERS,
    )


def _gradient(
    name: str, summary: str, tensors: str, bad_data: str, determinism: str, source: str, of: str = ""
) -> _Row:
    """The gradient of an operator with respect to its rows; `of` names the operator where `name` does not."""
    return _Row(
        name=f"{name}_backward",
        summary=f"Gradient of {{prefix}}_{of or name}: {summary}",
        tensors=f"{tensors}, index, grad_input",
        empty="No rows: success, nothing to write. No segments: grad_input is all zeros.",
        bad_data=bad_data,
        determinism=determinism,
        source=source,
    )


def _selection_gradients(name: str) -> tuple[_Row, ...]:
    """The gradients of a maximum or minimum: to the first row, to all rows of a tie, to a given row."""
    return (
        _gradient(
            name, f"grad_output[s, d] goes to the first row that holds the {name}imum.",
            "grad_output, same input", _SELECTED, _COPIED, _MAX_SOURCE,
        ),
        _gradient(
            f"{name}_even", f"grad_output[s, d] goes in equal parts to the rows that hold the {name}imum.",
            "grad_output, same input", "NaN wins over every number and equals NaN, -0 equals +0.",
            "One division by the number of ties, one rounding.",
            "torch.segment_reduce and tf.math.segment_max, whose gradients split ties.", of=name,
        ),
        _gradient(
            f"{name}_with_arg", "grad_output[s, d] goes to row arg[s, d], if that row is of s.",
            "grad_output, given arg", "", _COPIED, "torch_scatter.scatter_max (2.1).",
        ),
    )  # fmt: skip


_ROWS = (
    _reduction("sum", "sum", "0", _SUMMED, _IN_PIECES, "jax.ops.segment_sum (0.10).", _NUMBERS),
    _reduction(
        "mean", "mean", "0", _SUMMED, _IN_PIECES + " Divided by the count.", "tf.math.unsorted_segment_mean."
    ),
    _reduction("max", "max", _LOWEST, _SELECTED, _COPIED, _MAX_SOURCE, _NUMBERS),
    _reduction(
        "min", "min", _HIGHEST, _SELECTED, _COPIED, "jax.ops.segment_min (0.10).", _NUMBERS
    ),
    _reduction("prod", "product", "1", _SUMMED, _IN_PIECES, "jax.ops.segment_prod (0.10).", _NUMBERS),
    _reduction(
        "logsumexp",
        "log of the sum of exp",
        "-infinity",
        "A segment whose largest value is infinite has it as result. NaN anywhere gives NaN.",
        _IN_PIECES + " Each sum is relative to the largest value so far.",
        "torch_scatter.scatter_logsumexp (2.1). Differs: an empty segment is -infinity.",
    ),
    _selection("max", _LOWEST),
    _selection("min", _HIGHEST),
    _Row(
        name="softmax",
        summary="output[i, d] = exp(input[i, d]) over its sum over {condition}.",
        tensors="input, index, output rows",
        empty="No rows: success, nothing to write. Rows without a segment are 0.",
        bad_data="Where the largest value of a segment is infinite, the rows that hold it share 1 equally. NaN "
        "anywhere in a segment's column makes all of it NaN.",
        determinism=_IN_PIECES,
        source="torch_scatter.scatter_softmax (2.1); torch_geometric.utils.softmax.",
    ),
    _gradient(
        "sum", "grad_input[i, d] = grad_output[s, d] for the row's segment s.", "grad_output", "", _COPIED,
        "The transpose of the sum.",
    ),
    _gradient(
        "mean", "grad_input[i, d] = grad_output[s, d] / rows of s, for the row's segment s.", "grad_output", _SUMMED,
        "One division, one rounding.", "The transpose of the mean.",
    ),
    *_selection_gradients("max"),
    *_selection_gradients("min"),
    _gradient(
        "prod", "grad_output[s, d] times the product of the segment's other rows, also where rows are 0.",
        "grad_output, same input, unread output",
        "NaN and infinity follow arithmetic; two zeros or more: 0.", _IN_PIECES, "tf.math.segment_prod's gradient.",
    ),
    _gradient(
        "logsumexp", "grad_output[s, d] exp(input[i, d] - output[s, d]).",
        "grad_output, same input, given output",
        "Where input and output are equal the factor is 1, also if both are infinite. In f16 and bf16 the output, "
        "which is rounded, is not read: the factor is exp(input - largest) over the sum of these, formed anew in f32, "
        "and 1 for rows that are the largest if that is infinite.",
        f"In f32 and f64 one exponential, one rounding. In f16 and bf16: {_IN_PIECES}", "torch.logsumexp's gradient.",
    ),
    _gradient(
        "softmax", "output (grad_output - sum of output grad_output over {condition}).",
        "grad_output rows, given output rows", _SUMMED, _IN_PIECES, "torch.softmax's gradient.",
    ),
)  # fmt: skip

_OPTIONS = Options(
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

REDUCTIONS: tuple[Operator, ...] = (
    *(row.of(form) for form in _FORMS for row in _ROWS),
    Operator(
        name="segment_gather",
        family="segment",
        summary="output[i, d] = input[segment_ids[i], d]: the adjoint of unsorted_segment_sum, which is its gradient.",
        parameters=(
            *_FORMS[0].scalars,
            Tensor("input", "input", "T", _RESULT_SHAPE, "a row for each segment"),
            _FORMS[0].index,
            _FORMS[0].tensors["output rows"],
        ),
        variants=_FLOATS,
        empty="No rows: success, nothing to write. No segments: output is all zeros.",
        bad_data="A row whose id lies outside [0, num_segments) is 0.",
        workspace="None.",
        determinism=BIT_STABLE + _COPIED,
        source="torch.index_select; jax.numpy.take, mode fill.",
    ),
    Operator(
        name="segment_ex",
        family="segment",
        summary="Any reduction over segments, in any form: unsorted_segment_<reduce>, segment_<reduce>, "
        "segment_csr_<reduce>.",
        parameters=(
            _FORMS[2].scalars[0],
            *_FORMS[0].scalars[1:],
            _OPTIONS,
            Tensor("input", "input", "T", ("num_rows", "embedding_dim"), "rows"),
            Tensor("index", "input", "I", ("num_segments + 1 if form == 2 else num_rows",), "segment_ids or offsets"),
            Tensor("output", "output", "T", _RESULT_SHAPE, _WRITTEN),
            Tensor(
                "arg", "output", "I", ("num_segments if reduce >= 6 else 0", "embedding_dim"),
                "the row that holds each value, -1 for a segment without rows",
            ),
        ),
        variants=_NUMBERS,
        empty="An empty output: success, nothing to write. A segment without rows, or whose rows are all dropped, is "
        "empty_value, bit for bit.",
        bad_data="As the operator of that name.",
        workspace="As the operator of that name.",
        determinism=BIT_STABLE + "The bits of the operator of that name wherever a segment has rows.",
        source="Ours. The initial value of torch.segment_reduce (2.13) takes part in every segment; torch_scatter has "
        "0.",
    ),
)  # fmt: skip
