# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import CtcLossBackwardDescriptor, CtcLossBackwardPlan, CtcLossDescriptor, CtcLossPlan
from verify.definitions import ctc_loss as definitions
from verify.dtypes import Array

_INTEGERS = ("targets", "input_lengths", "target_lengths")


@dataclass(frozen=True, kw_only=True)
class _Ctc(Case):
    """Sequences of all `t` steps with `labels` labels, the first class the blank."""

    t: int
    n: int
    c: int
    labels: int

    @property
    def text(self) -> str:
        return f"T{self.t} N{self.n} C{self.c} L{self.labels}"

    @property
    def _wide(self) -> str:
        return "f64" if self.element == "f64" else "f32"

    @property
    def _states(self) -> int:
        return 2 * self.labels + 1

    def _fields(self) -> tuple[Any, ...]:
        return (self.t, self.n, self.c, self.n, self.labels, self._states, 0, self.element, "i64")

    def _sequences(self, draw: Draw) -> dict[str, Array]:
        scores = draw.normal((self.t, self.n, self.c), self.element).astype(np.float64)
        log_probs = scores - np.log(np.exp(scores).sum(2, keepdims=True))
        return {
            "log_probs": log_probs.astype(draw.normal((1,), self.element).dtype),
            "targets": draw.rng.integers(1, self.c, (self.n, self.labels)),
            "input_lengths": np.full(self.n, self.t),
            "target_lengths": np.full(self.n, self.labels),
        }

    def _one(self, inputs: Mapping[str, Array], number: int) -> tuple[Any, Any, Any, Any]:
        """One sequence by itself."""
        targets, steps, labels = (inputs[name][number : number + 1] for name in _INTEGERS)
        return inputs["log_probs"][:, number : number + 1], targets, steps, labels

    def small(self) -> Case:
        return replace(self, t=12, n=3, c=7, labels=3)

    @property
    def parts_text(self) -> str:
        return f"one of {self.n} sequences"


@dataclass(frozen=True, kw_only=True)
class CtcLoss(_Ctc):
    """Forward."""

    plan_type = CtcLossPlan

    def descriptor(self) -> CtcLossDescriptor:
        return CtcLossDescriptor(*self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return self._sequences(draw)

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {
            "neg_log_likelihood": ((self.n,), self._wide),
            "log_alpha": ((self.n, self.t, self._states), self._wide),
        }

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        number = int(draw.rng.integers(self.n))
        expected = definitions.ctc_loss(*self._one(inputs, number), self._states, 0)
        return [
            Part(0, lambda losses: losses[number : number + 1], expected.neg_log_likelihood),
            Part(1, lambda alphas: alphas[number : number + 1], expected.log_alpha),
        ]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        lengths = given["input_lengths"].tolist(), given["target_lengths"].tolist()
        return {"torch": lambda: torch._ctc_loss(given["log_probs"], given["targets"], *lengths, 0, False)}


@dataclass(frozen=True, kw_only=True)
class CtcLossBackward(_Ctc):
    """Backward, from what a forward call of the same sequences answers."""

    plan_type = CtcLossBackwardPlan

    def descriptor(self) -> CtcLossBackwardDescriptor:
        return CtcLossBackwardDescriptor(*self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        sequences = self._sequences(draw)
        log_probs, targets, steps, labels = sequences.values()
        sums = definitions.ctc_loss(log_probs, targets, steps, labels, self._states, 0)
        wide = np.float64 if self._wide == "f64" else np.float32
        return {
            "grad_output": np.ones(self.n, wide),
            **sequences,
            "neg_log_likelihood": sums.neg_log_likelihood.value.astype(wide),
            "log_alpha": sums.log_alpha.value.astype(wide),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_log_probs": ((self.t, self.n, self.c), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        number = int(draw.rng.integers(self.n))
        losses, alphas = (inputs[name][number : number + 1] for name in ("neg_log_likelihood", "log_alpha"))
        gradient = inputs["grad_output"][number : number + 1]
        expected = definitions.ctc_loss_backward(gradient, *self._one(inputs, number), losses, alphas, 0, False)
        return [Part(0, lambda slopes: slopes[:, number : number + 1], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        lengths = given["input_lengths"].tolist(), given["target_lengths"].tolist()
        sums = given["neg_log_likelihood"], given["log_alpha"]
        call = torch.ops.aten._ctc_loss_backward
        tensors = given["grad_output"], given["log_probs"], given["targets"]
        return {"torch": lambda: (call(*tensors, *lengths, *sums, 0, False),)}


# ---- rows

ORDER = 56

_SPEECH: dict[str, Any] = dict(t=500, n=32, c=80, labels=60)
_LONG: dict[str, Any] = dict(t=5000, n=16, c=64, labels=400)
_SHORT: dict[str, Any] = dict(t=50, n=64, c=30, labels=10)

CUDA = (
    Row(CtcLoss(**_SPEECH), limits=NO_SLOWER, headline=True),
    Row(CtcLossBackward(**_SPEECH), limits=NO_SLOWER),
    Row(CtcLoss(**_LONG), limits=NO_SLOWER),
    Row(CtcLossBackward(**_LONG), limits=NO_SLOWER),
    Row(CtcLoss(**_SHORT), limits=NO_SLOWER),
    Row(CtcLossBackward(**_SHORT), limits=NO_SLOWER),
)

CPU = (on_cpu(CtcLoss(**_SPEECH), NO_SLOWER), on_cpu(CtcLossBackward(**_SPEECH), NO_SLOWER))
