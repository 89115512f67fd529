# SPDX-License-Identifier: Apache-2.0
"""The losses of classification, by log-probabilities and by logits, and their gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Scalar, Tensor, Variant, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "rows or images"),
    extent("c", "classes"),
    extent("d", "elements of an image, all its axes together; 1 for rows"),
    Scalar("has_weight", "i32", "1 if classes have weights, 0 if each weighs 1", low=0, high=1),
    Scalar("ignore_index", "i64", "the target of elements that do not count; any"),
    Scalar("reduction", "i32", "0 none, 1 mean, 2 sum", low=0, high=2),
)
_SMOOTHING = Scalar("label_smoothing", "f64", "share of the target that all classes have alike; finite", finite=True)
_ELEMENTS = ("n", "d")
_LOSSES = ("n if reduction == 0 else 1", "d if reduction == 0 else 1")
_TARGET = Tensor("target", "input", "I", _ELEMENTS, "class of each element")
_WEIGHT = Tensor("weight", "input", "T", ("has_weight", "c"), "weight of each class; not looked at without weights")
_OUTPUT = Tensor(
    "output", "output", "T", _LOSSES, "the loss of each element, 0 for one that does not count, or the one loss"
)
_TOTAL = Tensor(
    "total_weight", "output", "C", ("1",), "sum of the weights of the elements' classes; 0 without a reduction"
)
_DROPPED = Tensor("num_dropped", "output", "I", ("1",), "how many targets are neither ignore_index nor a class")
_SUM = Tensor(
    "log_sum_exp", "output", "C", _ELEMENTS, "the logarithm of the sum of exponentials; 0 for one that does not count"
)
_GRAD_OUTPUT = Tensor("grad_output", "input", "T", _LOSSES, "gradient of the output")
_GIVEN_TOTAL = Tensor("total_weight", "input", "C", ("1",), "of the forward call; read for a mean alone")
_GIVEN_SUM = Tensor("log_sum_exp", "input", "C", _ELEMENTS, "of the forward call")
_GRAD_INPUT = Tensor("grad_input", "output", "T", ("n", "c", "d"), "every element is written, also the zeros")

# C is the dtype of sums.
_VARIANTS = tuple(
    Variant(infix + variant.token, {**variant.types, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for variant in IMAGE_FLOATS
)
_EMPTY_GRADIENT = "An empty grad_input: success, nothing to write."
_EMPTY = (
    "No elements: a mean is NaN, a sum 0, total_weight and num_dropped 0. c = 0: no target is a class; a mean is NaN."
)
_BAD_DATA = (
    "A target outside [0, c) that is not ignore_index is dropped: its element does not count, its gradient is 0, and "
    "no memory is read by it. num_dropped says how many there are, {most}. What stands in input for an element that "
    "does not count is not looked at. "
)
_MOST = "at most 2^31 - 1 of i32"
_BAD_GRADIENT = (
    "A target outside [0, c) or equal to ignore_index has the gradient 0, whatever stands in input and grad_output."
)
_TREE = (
    "Elements are added in pairs, in row-major order of target: the sum of 2^k elements whose first one's number is a "
    "multiple of 2^k is the sum of its two halves, and what is not there adds nothing; weights alike. A mean is the "
    "quotient of both sums. "
)
_EXPONENTIALS = (
    "Exponentials are taken relative to the largest logit of a piece and added up, where d > 1 in pieces of 32 classes "
    "in ascending order, pieces being joined to what came before. Where d = 1 pieces have 512 classes: class i belongs "
    "to strand i mod 32, strands are sums in ascending order, and neighbouring ones are added in pairs as elements "
    "are; up to 1024 pieces are joined at once in the same way, and what there is beyond to what came before. exp and "
    "log err by less than one unit in the last place."
)
_SOURCE = "torch.nn.functional.{function} (2.13){differs}."
_ITEMS = "16 bytes (f64: 24)"
_FOLDED = "for every 8192 of these or part of them once more, and 192 bytes"
_ROW_SCRATCH = " On the CPU also at most 56 KiB."

# Beside the segments, whose softmax this is.
ORDER = 55
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="nll_loss",
        family="nll_loss",
        summary="Negative log-likelihood of the target classes: -weight[t] input[i, t, j], where t is target[i, j]; as "
        "it is, the sum over all elements, or that divided by the sum of weight[t].",
        parameters=(
            *_SCALARS,
            Tensor("input", "input", "T", ("n", "c", "d"), "logarithms of the classes' probabilities"),
            _TARGET,
            _WEIGHT,
            _OUTPUT,
            _TOTAL,
            _DROPPED,
        ),
        variants=_VARIANTS,
        empty=_EMPTY,
        bad_data=_BAD_DATA.format(most=_MOST).strip(),
        workspace=f"For every 256 elements or part of them at most {_ITEMS}, {_FOLDED}.",
        determinism=BIT_STABLE + _TREE.strip(),
        source=_SOURCE.format(function="nll_loss", differs=""),
    ),
    Operator(
        name="nll_loss_backward",
        family="nll_loss",
        summary="Gradient of nll_loss with respect to its input: -weight[t] grad_output, for a mean divided by "
        "total_weight, where t is the class, and 0 elsewhere.",
        parameters=(*_SCALARS, _GRAD_OUTPUT, _TARGET, _WEIGHT, _GIVEN_TOTAL, _GRAD_INPUT),
        variants=_VARIANTS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_GRADIENT,
        workspace="None.",
        determinism=BIT_STABLE + "Nothing is added.",
        source=_SOURCE.format(function="nll_loss", differs=""),
    ),
    Operator(
        name="cross_entropy",
        family="nll_loss",
        summary="Cross entropy between logits and target classes, in one pass over the logits. With s = "
        "label_smoothing and p[k] = log_sum_exp - input[i, k, j] an element's loss is (1 - s) weight[t] p[t] + s / c "
        "times the sum of weight[k] p[k]; as it is, the sum over all elements, or that divided by the sum of the "
        "weight[t].",
        parameters=(
            *_SCALARS,
            _SMOOTHING,
            Tensor("input", "input", "T", ("n", "c", "d"), "logits of the classes"),
            _TARGET,
            _WEIGHT,
            _OUTPUT,
            _SUM,
            _TOTAL,
            _DROPPED,
        ),
        variants=_VARIANTS,
        empty=_EMPTY,
        bad_data=_BAD_DATA.format(most=_MOST) + "A NaN or positive infinity among an element's logits makes its loss "
        "and log_sum_exp NaN, and logits that are all negative infinity do.",
        workspace=f"For every 256 elements or part of them, where d = 1 for every row, at most {_ITEMS}, {_FOLDED}."
        + _ROW_SCRATCH,
        determinism=BIT_STABLE + _TREE + _EXPONENTIALS,
        source=_SOURCE.format(
            function="cross_entropy",
            differs="; the online sum is Milakov and Gimelshein's, 2018. Differs: nothing is rounded to 16 bits "
            "between softmax and loss, and logits of an element that does not count are not looked at",
        ),
    ),
    Operator(
        name="cross_entropy_backward",
        family="nll_loss",
        summary="Gradient of cross_entropy with respect to its input, in one pass. With q = exp(input - log_sum_exp), "
        "s = label_smoothing and g = grad_output, for a mean divided by total_weight, it is (1 - s) weight[t] g (q - 1 "
        "for class t, q for others) + s / c g (q times the sum of all weights, less the class's own).",
        parameters=(
            *_SCALARS,
            _SMOOTHING,
            _GRAD_OUTPUT,
            Tensor("input", "input", "T", ("n", "c", "d"), "logits of the classes"),
            _TARGET,
            _WEIGHT,
            _GIVEN_SUM,
            _GIVEN_TOTAL,
            _GRAD_INPUT,
        ),
        variants=_VARIANTS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_GRADIENT,
        workspace="With weights at most 16 bytes.",
        determinism=BIT_STABLE + "Weights are added in pairs, as the forward call's elements are.",
        source=_SOURCE.format(function="cross_entropy", differs=""),
    ),
)
