# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Scalar, Tensor, Variant, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("t", "time steps"),
    extent("n", "sequences in the batch"),
    extent("c", "classes, the blank among them"),
    extent("target_rows", "n: a row of targets for each sequence; 1: the sequences' targets one behind another"),
    extent("target_columns", "places in a row of targets"),
    extent("num_states", "twice the number of labels that a target may have, and 1"),
    Scalar("blank", "i32", "the class that is no label", low=0, high=2**31 - 1),
)
_LOG_PROBS = Tensor("log_probs", "input", "T", ("t", "n", "c"), "logarithms of the classes' probabilities")
_TARGETS = Tensor("targets", "input", "I", ("target_rows", "target_columns"), "classes of the labels")
_INPUT_LENGTHS = Tensor("input_lengths", "input", "I", ("n",), "time steps of each sequence")
_TARGET_LENGTHS = Tensor("target_lengths", "input", "I", ("n",), "labels of each target")
_ALPHA = ("n", "t", "num_states")

# C is the dtype of sums.
_VARIANTS = tuple(
    Variant(infix + variant.token, {**variant.types, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for variant in IMAGE_FLOATS
)
_BAD = (
    "A sequence is bad whose input_length is not 0..t, whose target_length L is negative, has 2 L + 1 > num_states or "
    "does not fit in target_columns behind the targets before it, that has a label outside [0, c), and every sequence "
    "where blank >= c. "
)
_LENGTHS_OF_OTHERS = "Where targets are joined a negative target_length counts as 0 for those behind it."
_OF_JOINED = "Where targets are joined 8 bytes a sequence (on CUDA for more than 1024 sequences)"
_SUM = (
    "The logarithm of a sum is that of 1 + exp(middle - largest) + exp(smallest - largest), added in this order, plus "
    "largest; exp and log err by less than one unit in the last place. "
)
_SOURCE = "Graves et al., 2006; torch.nn.functional.ctc_loss (2.13)."

# Beside the other losses.
ORDER = 56
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="ctc_loss",
        family="ctc_loss",
        summary="Connectionist temporal classification: the negative logarithm of the probability of all alignments of "
        "a target with a sequence, infinite where there is none.",
        parameters=(
            *_SCALARS,
            _LOG_PROBS,
            _TARGETS,
            _INPUT_LENGTHS,
            _TARGET_LENGTHS,
            Tensor("neg_log_likelihood", "output", "C", ("n",), "the loss of each sequence"),
            Tensor(
                "log_alpha",
                "output",
                "C",
                _ALPHA,
                "logarithms of the probabilities of all beginnings of alignments that end in a state; -infinity at "
                "time steps and in states that a sequence does not have",
            ),
        ),
        variants=_VARIANTS,
        empty="No time steps: the loss is 0 where a target has no labels, else infinite. No classes or no states: NaN.",
        bad_data=_BAD + "Its loss is NaN and its log_alpha -infinity. No memory is read by it. " + _LENGTHS_OF_OTHERS,
        workspace=_OF_JOINED + ", else none.",
        determinism=BIT_STABLE + _SUM.strip(),
        source=_SOURCE,
    ),
    Operator(
        name="ctc_loss_backward",
        family="ctc_loss",
        summary="Gradient of ctc_loss with respect to log_probs, for log_probs that are logarithms of a softmax: "
        "(exp(log_probs) - share) grad_output, where share is the probability that an alignment is in the class at "
        "the time step; 0 at time steps that a sequence does not have.",
        parameters=(
            *_SCALARS,
            Scalar("zero_infinity", "i32", "1 if the gradient of an infinite loss is 0", low=0, high=1),
            Tensor("grad_output", "input", "C", ("n",), "gradient of neg_log_likelihood"),
            _LOG_PROBS,
            _TARGETS,
            _INPUT_LENGTHS,
            _TARGET_LENGTHS,
            Tensor("neg_log_likelihood", "input", "C", ("n",), "of the forward call"),
            Tensor("log_alpha", "input", "C", _ALPHA, "of the forward call"),
            Tensor("grad_log_probs", "output", "T", ("t", "n", "c"), "every element is written, also the zeros"),
        ),
        variants=_VARIANTS,
        empty="An empty grad_log_probs: success, nothing to write.",
        bad_data=_BAD + "Its gradient is NaN at every time step; so is that of a loss that is not finite, at those of "
        "its sequence, unless zero_infinity says 0, and that of a finite loss that no forward call answers, of a "
        "sequence with fewer time steps than labels. No memory is read by a bad sequence. " + _LENGTHS_OF_OTHERS,
        workspace=_OF_JOINED + ". On the CPU for each sequence 12 bytes a state (f64: 22), on CUDA for each sequence 4 "
        "bytes (f64: 8) a time step and state, 2 bytes a state and 16; and at most 64.",
        determinism=BIT_STABLE + _SUM + "Shares of a class are added in ascending order of their places in the target. "
        "Those of the blank are added in 32 strands, blank i in strand i mod 32, each in ascending order; neighbouring "
        "strands are added in pairs until one is left, and to this the shares of labels that are the blank.",
        source=_SOURCE,
    ),
)
