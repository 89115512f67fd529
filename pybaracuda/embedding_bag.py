# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import Operand, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, IndexedDescriptor
from ._errors import shown
from ._plan import Plan

__all__ = [
    "EmbeddingBagBackwardDescriptor",
    "EmbeddingBagBackwardPlan",
    "EmbeddingBagDescriptor",
    "EmbeddingBagMaxBackwardDescriptor",
    "EmbeddingBagMaxBackwardPlan",
    "EmbeddingBagMaxDescriptor",
    "EmbeddingBagMaxPlan",
    "EmbeddingBagPlan",
    "EmbeddingBagWeightsBackwardDescriptor",
    "EmbeddingBagWeightsBackwardPlan",
    "embedding_bag",
    "embedding_bag_backward",
    "embedding_bag_weights_backward",
]

MODES = ("sum", "mean", "max")
# What indices of a dtype are converted to, unless others are of 64 bits.
_INDEX_CASTS = {"i32": "i32", "i64": "i64", "s8": "i32", "u8": "i32", "s16": "i32", "u16": "i32"}


@dataclass(frozen=True, slots=True)
class EmbeddingBagMaxDescriptor(IndexedDescriptor):
    """The largest values of bags of embeddings.

    Parameters
    ----------
    num_indices, num_bags, num_embeddings, embedding_dim : int
        Indices of all bags, bags, rows of the table, columns.
    padding_idx : int
        The row that takes no part; a number that is no row: none.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of the table and of what is made of it.
    index_element : {"i32", "i64"}
        Dtype of indices, offsets and what is told of bags.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    num_indices: int
    num_bags: int
    num_embeddings: int
    embedding_dim: int
    padding_idx: int = -1
    element: str = "f32"
    index_element: str = "i64"

    operator: ClassVar[str] = "embedding_bag_max"


@dataclass(frozen=True, slots=True)
class EmbeddingBagMaxBackwardDescriptor(EmbeddingBagMaxDescriptor):
    """The gradient of the largest values; the fields are those of :class:`EmbeddingBagMaxDescriptor`."""

    operator: ClassVar[str] = "embedding_bag_max_backward"


@dataclass(frozen=True, slots=True)
class EmbeddingBagWeightsBackwardDescriptor(EmbeddingBagMaxDescriptor):
    """The gradient with respect to weights; the fields are those of :class:`EmbeddingBagMaxDescriptor`."""

    operator: ClassVar[str] = "embedding_bag_weights_backward"


@dataclass(frozen=True, slots=True)
class EmbeddingBagDescriptor(EmbeddingBagMaxDescriptor):
    """Sums or means of bags of embeddings.

    The other fields are those of :class:`EmbeddingBagMaxDescriptor`.

    Parameters
    ----------
    mean : int
        1: sums are divided by how many rows take part; 0: they are not.
    has_per_sample_weights : int
        1 if positions have weights, else 0.
    wants_bags : int
        1: each position's bag and each bag's size are answered, too; 0: they are not.
    """

    mean: int = 0
    has_per_sample_weights: int = 0
    wants_bags: int = 1

    operator: ClassVar[str] = "embedding_bag"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The weights, where there are none, and what says where bags are, where nobody wants it."""
        weights = () if self.has_per_sample_weights else ("per_sample_weights",)
        return frozenset(weights if self.wants_bags else (*weights, "bag_ids", "bag_sizes"))


@dataclass(frozen=True, slots=True)
class EmbeddingBagBackwardDescriptor(EmbeddingBagMaxDescriptor):
    """The gradient of sums or means with respect to the table.

    The other fields are those of :class:`EmbeddingBagMaxDescriptor`.

    Parameters
    ----------
    mean, has_per_sample_weights : int
        Those of the forward call.
    scale_grad_by_freq : int
        1: each row's gradient is divided by how many positions name it.
    """

    mean: int = 0
    has_per_sample_weights: int = 0
    scale_grad_by_freq: int = 0

    operator: ClassVar[str] = "embedding_bag_backward"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The weights, where there are none, and the sizes, but for a mean."""
        given = {"bag_sizes": self.mean, "per_sample_weights": self.has_per_sample_weights}
        return frozenset(name for name, is_there in given.items() if not is_there)


class EmbeddingBagPlan(Plan):
    """Tensors ``weight``, ``indices`` and ``offsets``, ``per_sample_weights`` [1, num_indices], and three outputs.

    ``output`` [num_bags, embedding_dim] and, where they are wanted, ``bag_ids`` [1, num_indices] and ``bag_sizes`` [1,
    num_bags].
    """

    __slots__ = ()
    descriptor_type = EmbeddingBagDescriptor
    category = "embedding"


class EmbeddingBagMaxPlan(Plan):
    """Tensors ``weight``, ``indices`` and ``offsets``, and four outputs.

    ``output`` [num_bags, embedding_dim], ``bag_ids`` [num_indices], ``bag_sizes`` [num_bags] and ``arg`` [num_bags,
    embedding_dim], which has rows of the table.
    """

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = EmbeddingBagMaxDescriptor
    category = "embedding"


class EmbeddingBagBackwardPlan(Plan):
    """Tensors ``grad_output``, ``indices`` and ``bag_ids``, two that a call may not have, and ``grad_weight``.

    ``bag_sizes`` [1, num_bags] where it is a mean, ``per_sample_weights`` [1, num_indices] where there are weights.
    """

    __slots__ = ()
    descriptor_type = EmbeddingBagBackwardDescriptor
    category = "embedding"


class EmbeddingBagMaxBackwardPlan(Plan):
    """Tensors ``grad_output``, ``indices``, ``bag_ids``, ``arg`` and ``grad_weight``."""

    __slots__ = ()
    descriptor_type = EmbeddingBagMaxBackwardDescriptor
    category = "embedding"


class EmbeddingBagWeightsBackwardPlan(Plan):
    """Tensors ``grad_output``, ``weight``, ``indices``, ``bag_ids`` and ``grad_weights`` [num_indices]."""

    __slots__ = ()
    descriptor_type = EmbeddingBagWeightsBackwardDescriptor
    category = "embedding"


# An operand as far as it is checked before a call.
_Given = tuple[tuple[int, ...], str]


def mode_of(value: Any) -> str:
    """Check the name of what becomes of a bag."""
    if not isinstance(value, str) or value not in MODES:
        raise ValueError(f"mode is {shown(value)}; wanted one of {', '.join(MODES)}")
    return value


def padding_of(value: Any, num_embeddings: int) -> int:
    """Answer the row that takes no part, -1 for none; it may be counted from the end."""
    if value is None:
        return -1
    row = _call.whole("padding_idx", value)
    if not -num_embeddings <= row < num_embeddings:
        raise ValueError(f"padding_idx is {row}; wanted a row of {num_embeddings}, or None")
    return row % num_embeddings


def _index_casts(given: dict[str, _Given]) -> tuple[str, list[str | None]]:
    """Answer the dtype that indices have in common, and what each is converted to."""
    wanted = [_INDEX_CASTS[_call.element_of(name, dtype, tuple(_INDEX_CASTS))] for name, (_, dtype) in given.items()]
    common = "i64" if "i64" in wanted else "i32"
    return common, [None if dtype == common else common for _, dtype in given.values()]


def _check_weights(weights: _Given | None, mode: str, count: int, element: str, of: str) -> None:
    if weights is None:
        return
    if mode != "sum":
        raise ValueError(f"per_sample_weights: mode is {mode!r}; wanted 'sum'")
    _call.check_shape("per_sample_weights", weights[0], (count,))
    _call.element_of("per_sample_weights", weights[1], (element,), why=f", the dtype of {of}")


def _given(operand: Operand) -> _Given:
    return operand.shape, operand.dtype


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    weight: _Given,
    input: _Given,
    offsets: _Given,
    per_sample_weights: _Given | None,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
    all_wanted: bool,
) -> Prepared:
    """Prepare a forward call."""
    element = _call.element_of("weight", weight[1])
    _call.check_rank("weight", weight[0], "[E, D]", 2)
    _call.check_rank("input", input[0], "[N]", 1)
    _call.check_rank("offsets", offsets[0], "[B]", 1)
    if include_last_offset and not offsets[0][0]:
        raise ValueError("offsets has shape (0,); wanted the last offset, at least")
    (count,), bags, columns = input[0], offsets[0][0] - int(include_last_offset), weight[0][1]
    _check_weights(per_sample_weights, mode, count, element, "weight")
    index, casts = _index_casts({"input": input, "offsets": offsets})
    fields: dict[str, Any] = {
        "num_indices": count, "num_bags": bags, "num_embeddings": weight[0][0], "embedding_dim": columns,
        "padding_idx": padding_of(padding_idx, weight[0][0]), "element": element, "index_element": index,
    }  # fmt: skip
    outputs = [Output((bags, columns), element, element)]
    of_bags = [Output(shape, index, index, wanted=all_wanted) for shape in ((count,), (bags,))]
    descriptor: Descriptor
    if mode == "max":
        descriptor = EmbeddingBagMaxDescriptor(**fields)
        outputs += [*of_bags, Output((bags, columns), index, index, wanted=all_wanted)]
    else:
        fields["mean"], fields["has_per_sample_weights"] = int(mode == "mean"), int(per_sample_weights is not None)
        descriptor = EmbeddingBagDescriptor(**fields, wants_bags=int(all_wanted))
        outputs += of_bags if all_wanted else []
    more: list[str | None] = [] if per_sample_weights is None else [None]
    return Prepared(_call.kernel_for(descriptor, device), outputs, casts=(None, *casts, *more))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_output: _Given,
    input: _Given,
    bag_ids: _Given,
    bag_sizes: _Given | None,
    arg: _Given | None,
    per_sample_weights: _Given | None,
    num_embeddings: int,
    mode: str,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
) -> Prepared:
    """Prepare a gradient with respect to the table."""
    element = _call.element_of("grad_output", grad_output[1])
    _call.check_rank("grad_output", grad_output[0], "[B, D]", 2)
    _call.check_rank("input", input[0], "[N]", 1)
    _call.check_shape("bag_ids", bag_ids[0], input[0])
    if num_embeddings < 0:
        raise ValueError(f"num_embeddings is {num_embeddings}; wanted at least 0")
    (bags, columns), (count,) = grad_output[0], input[0]
    _check_weights(per_sample_weights, mode, count, element, "grad_output")
    given = {"input": input, "bag_ids": bag_ids}
    wanted = {"mean": ("bag_sizes", bag_sizes, (bags,)), "max": ("arg", arg, (bags, columns))}.get(mode)
    if wanted is not None:
        name, operand, shape = wanted
        assert operand is not None
        _call.check_shape(name, operand[0], shape)
        given[name] = operand
    index, casts = _index_casts(given)
    fields = (count, bags, num_embeddings, columns, padding_of(padding_idx, num_embeddings), element, index)
    descriptor: Descriptor
    if mode == "max":
        if scale_grad_by_freq:
            raise ValueError("scale_grad_by_freq: mode is 'max', which has none")
        descriptor = EmbeddingBagMaxBackwardDescriptor(*fields)
    else:
        flags = int(mode == "mean"), int(per_sample_weights is not None), int(scale_grad_by_freq)
        descriptor = EmbeddingBagBackwardDescriptor(*fields, *flags)
    more: list[str | None] = [] if per_sample_weights is None else [None]
    output = Output((num_embeddings, columns), element, element)
    return Prepared(_call.kernel_for(descriptor, device), [output], casts=(None, *casts, *more))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_weights_backward(
    device: int, grad_output: _Given, weight: _Given, input: _Given, bag_ids: _Given, padding_idx: int | None
) -> Prepared:
    """Prepare a gradient with respect to the weights of positions."""
    element = _call.element_of("grad_output", grad_output[1])
    _call.element_of("weight", weight[1], (element,), why=", the dtype of grad_output")
    _call.check_rank("grad_output", grad_output[0], "[B, D]", 2)
    _call.check_rank("weight", weight[0], "[E, D]", 2)
    _call.check_shape("weight", weight[0], (weight[0][0], grad_output[0][1]))
    _call.check_rank("input", input[0], "[N]", 1)
    _call.check_shape("bag_ids", bag_ids[0], input[0])
    index, casts = _index_casts({"input": input, "bag_ids": bag_ids})
    padding = padding_of(padding_idx, weight[0][0])
    (rows, columns), (count,) = weight[0], input[0]
    descriptor = EmbeddingBagWeightsBackwardDescriptor(count, grad_output[0][0], rows, columns, padding, element, index)
    output = Output(input[0], element, element)
    return Prepared(_call.kernel_for(descriptor, device), [output], casts=(None, None, *casts))


def _optional_padding(value: Any) -> int | None:
    return None if value is None else _call.whole("padding_idx", value)


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *,
    return_bags: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Reduce bags of rows of a table, as ``torch.nn.functional.embedding_bag`` does.

    Parameters
    ----------
    input : array, [N]
        The row of each position in int32 or int64, the bags one after another; narrower integers are converted by a
        copy.
    weight : array, [E, D]
        The table in float32, float64, float16 or bfloat16.
    offsets : array, [B]
        Where each bag begins, never descending; it ends where the next one begins, the last one with `input`.
    mode : {"mean", "sum", "max"}
        What becomes of a bag.
    per_sample_weights : array, [N], optional
        A weight for each position in the table's dtype, for sums.
    include_last_offset : bool
        Whether `offsets` has one entry more, which is taken for N.
    padding_idx : int, optional
        The row that takes no part, negative from the last one.
    return_bags : bool
        Whether to answer also what the gradients need.
    out : array, optional
        Dense array that receives the result, with `return_bags` a tuple, or None in place of one. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the table's framework.

    Returns
    -------
    output : array, [B, D]
        Of the table's kind, dtype and device.
    bag_ids : array, [N]
        With `return_bags`: the bag of each position, -1 before the first bag, in the dtype of indices.
    bag_sizes : array, [B]
        With `return_bags`: how many positions of each bag take part.
    arg : array, [B, D]
        With `return_bags`, of maxima: the row of the table that holds each, -1 for none.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never taken.
    ValueError
        If shapes do not fit, `mode` is none, or `out` cannot be written.

    Notes
    -----
    A position whose index is no row of the table takes no part, as one of `padding_idx`. A bag in which nothing takes
    part is 0. Of equal maxima the first position wins, and NaN over every number. float16 and bfloat16 are added up in
    float32 and rounded once.

    A bag's positions are added in ascending order in pieces of 256, and pieces in ascending order. So the same inputs
    give the same bits on every run, thread count, GPU and backend. Strided arrays are copied first. May be called from
    any number of threads.
    """
    kind, everything = mode_of(mode), _call.flag("return_bags", return_bags)
    names = ("output", "bag_ids", "bag_sizes", *(["arg"] if kind == "max" else []))
    first = read("weight", weight, stream)
    operands = [first, read("input", input, stream, first), read("offsets", offsets, stream, first)]
    if per_sample_weights is not None:
        operands.append(read("per_sample_weights", per_sample_weights, stream, first))
    prepared = prepare(
        first.device,
        *map(_given, operands[:3]),
        None if per_sample_weights is None else _given(operands[3]),
        kind,
        _call.flag("include_last_offset", include_last_offset),
        _optional_padding(padding_idx),
        everything,
    )
    if not everything:
        return prepared.launch(tuple(operands), (out, *(None,) * (len(prepared.outputs) - 1)), stream)[0]
    return tuple(prepared.launch(tuple(operands), _call.outs_of(out, names), stream))


def embedding_bag_backward(
    grad_output: Any,
    input: Any,
    bag_ids: Any,
    num_embeddings: int,
    mode: str = "mean",
    bag_sizes: Any = None,
    arg: Any = None,
    per_sample_weights: Any = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`embedding_bag` with respect to the table.

    Parameters
    ----------
    grad_output : array, [B, D]
        Gradient of the result in float32, float64, float16 or bfloat16.
    input : array, [N]
        The forward call's indices.
    bag_ids : array, [N]
        What the forward call answered.
    num_embeddings : int
        Rows of the table.
    mode : {"mean", "sum", "max"}
        The forward call's.
    bag_sizes : array, [B]
        What the forward call answered; for a mean alone.
    arg : array, [B, D]
        What the forward call answered; for maxima alone.
    per_sample_weights : array, [N], optional
        The forward call's.
    padding_idx : int, optional
        The forward call's.
    scale_grad_by_freq : bool
        Whether each row's gradient is divided by how many positions name it; not for maxima.
    out : array, optional
        Dense array of shape [num_embeddings, D]; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [num_embeddings, D]
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError
        As :func:`embedding_bag`.

    Notes
    -----
    A row's positions are added in ascending order in pieces of 256, and pieces in ascending order: the same bits on
    every run, thread count, GPU and backend. May be called from any number of threads.
    """
    kind = mode_of(mode)
    first = read("grad_output", grad_output, stream)
    names = [
        {"mean": "bag_sizes", "max": "arg"}.get(kind),
        None if per_sample_weights is None else "per_sample_weights",
    ]
    optional = {"bag_sizes": bag_sizes, "arg": arg, "per_sample_weights": per_sample_weights}
    operands = [first, read("input", input, stream, first), read("bag_ids", bag_ids, stream, first)]
    more = {name: read(name, optional[name], stream, first) for name in names if name is not None}
    prepared = prepare_backward(
        first.device,
        *map(_given, operands),
        *(_given(more[name]) if name in more else None for name in optional),
        _call.whole("num_embeddings", num_embeddings),
        kind,
        _optional_padding(padding_idx),
        _call.flag("scale_grad_by_freq", scale_grad_by_freq),
    )
    return prepared.launch((*operands, *more.values()), (out,), stream)[0]


def embedding_bag_weights_backward(
    grad_output: Any,
    weight: Any,
    input: Any,
    bag_ids: Any,
    padding_idx: int | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`embedding_bag` with respect to `per_sample_weights`.

    Parameters
    ----------
    grad_output : array, [B, D]
        Gradient of the result in float32, float64, float16 or bfloat16.
    weight : array, [E, D]
        The forward call's table.
    input : array, [N]
        The forward call's indices.
    bag_ids : array, [N]
        What the forward call answered.
    padding_idx : int, optional
        The forward call's.
    out : array, optional
        Dense array of shape [N]; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N]
        Of the gradient's kind, dtype and device; `out` if given. 0 of a position that takes no part.

    Raises
    ------
    TypeError, ValueError
        As :func:`embedding_bag`.

    Notes
    -----
    The products of two rows are added up in up to 128 strands of columns, which are halved down to one: the same bits
    on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    operands = [first, read("weight", weight, stream, first), read("input", input, stream, first)]
    operands.append(read("bag_ids", bag_ids, stream, first))
    prepared = prepare_weights_backward(first.device, *map(_given, operands), _optional_padding(padding_idx))
    return prepared.launch(tuple(operands), (out,), stream)[0]
