# SPDX-License-Identifier: Apache-2.0
"""Losses of classification as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Limit, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import (
    CrossEntropyBackwardDescriptor,
    CrossEntropyBackwardPlan,
    CrossEntropyDescriptor,
    CrossEntropyPlan,
    NllLossBackwardDescriptor,
    NllLossBackwardPlan,
    NllLossDescriptor,
    NllLossPlan,
)
from verify.definitions import nll_loss as definitions
from verify.dtypes import Array

# What is held against the definition: so many elements of an image, or rows, and losses of so many logits.
_COLUMNS = 500
_MOST_LOGITS = 1 << 26


@dataclass(frozen=True, kw_only=True)
class _Loss(Case):
    """A mean over rows, or images of `sides`; no class has a weight, every element counts."""

    n: int
    c: int
    sides: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return "x".join(map(str, (self.n, self.c, *self.sides)))

    @property
    def _d(self) -> int:
        return int(np.prod(self.sides))

    @property
    def _sums(self) -> str:
        return "f64" if self.element == "f64" else "f32"

    def _fields(self) -> dict[str, Any]:
        return {"n": self.n, "c": self.c, "d": self._d, "element": self.element}

    def _logits(self, draw: Draw) -> Array:
        return draw.normal((self.n, self.c, self._d), self.element)

    def _targets(self, draw: Draw) -> Array:
        return draw.rng.integers(0, self.c, (self.n, self._d))

    def _total(self) -> Array:
        return np.array([self.n * self._d], np.float64 if self.element == "f64" else np.float32)

    def _in_torch(self, tensor: Any) -> Any:
        """With the axes that PyTorch takes."""
        return tensor.view(*tensor.shape[:-1], *self.sides) if self.sides else tensor.squeeze(-1)

    def _chosen(self, draw: Draw) -> tuple[Any, Any]:
        """Some elements: of all rows some, or of all images the same places."""
        if self.sides:
            return slice(None), draw.some(min(_COLUMNS, self._d), self._d)
        return draw.some(min(_COLUMNS, self.n), self.n), slice(None)

    def small(self) -> Case:
        return replace(self, n=3, c=min(self.c, 40), sides=(4, 5)[: len(self.sides)])

    @property
    def parts_text(self) -> str:
        return f"{_COLUMNS} places" if self.sides else f"{_COLUMNS} rows"


@dataclass(frozen=True, kw_only=True)
class NllLoss(_Loss):
    """By log-probabilities."""

    plan_type = NllLossPlan

    def descriptor(self) -> NllLossDescriptor:
        return NllLossDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": self._logits(draw), "target": self._targets(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((1, 1), self.element), "total_weight": ((1,), self._sums), "num_dropped": ((1,), "i64")}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        # Of each element's classes one is looked up.
        return inputs["input"].nbytes // self.c * (self.c - 1)

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        target = inputs["target"]
        looked_up = np.take_along_axis(inputs["input"], target[:, None], 1)
        found = definitions.nll_loss(looked_up, np.zeros_like(target), None, -100, "mean")
        return [Part(0, lambda output: output, found.output), Part(1, lambda total: total, found.total_weight)]

    @property
    def parts_text(self) -> str:
        return "all"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        logits, target = self._in_torch(given["input"]), self._in_torch(given["target"])
        forward = torch.ops.aten.nll_loss2d_forward if self.sides else torch.ops.aten.nll_loss_forward
        return {"torch": lambda: (*forward(logits, target, None, 1, -100), None)}


@dataclass(frozen=True, kw_only=True)
class NllLossBackward(_Loss):
    """Its gradient."""

    plan_type = NllLossBackwardPlan

    def descriptor(self) -> NllLossBackwardDescriptor:
        return NllLossBackwardDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal((1, 1), self.element),
            "target": self._targets(draw),
            "total_weight": self._total(),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": ((self.n, self.c, self._d), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        rows, places = self._chosen(draw)
        target = inputs["target"][rows][:, places]
        shape = (target.shape[0], self.c, target.shape[1])
        expected = definitions.nll_loss_backward(
            inputs["grad_output"], shape, target, None, -100, "mean", inputs["total_weight"]
        )
        return [Part(0, lambda gradient: gradient.reshape(self.n, self.c, -1)[rows][:, :, places], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        target, total = self._in_torch(given["target"]), given["total_weight"].to(given["grad_output"].dtype)
        gradient, logits = given["grad_output"].view(()), self._in_torch(given["grad_input"])
        backward = torch.ops.aten.nll_loss2d_backward if self.sides else torch.ops.aten.nll_loss_backward
        return {"torch": lambda: (backward(gradient, logits, target, None, 1, -100, total.view(())),)}


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(_Loss):
    """By logits."""

    plan_type = CrossEntropyPlan

    def descriptor(self) -> CrossEntropyDescriptor:
        return CrossEntropyDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": self._logits(draw), "target": self._targets(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {
            "output": ((1, 1), self.element),
            "log_sum_exp": ((self.n, self._d), self._sums),
            "total_weight": ((1,), self._sums),
            "num_dropped": ((1,), "i64"),
        }

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        rows, places = self._chosen(draw)
        logits, target = inputs["input"][rows][:, :, places], inputs["target"][rows][:, places]
        found = definitions.cross_entropy(logits, target, None, -100, "mean")
        assert found.log_sum_exp is not None
        parts = [Part(1, lambda sums: sums[rows][:, places], found.log_sum_exp)]
        if inputs["input"].size <= _MOST_LOGITS:
            loss = definitions.cross_entropy(inputs["input"], inputs["target"], None, -100, "mean").output
            parts.append(Part(0, lambda output: output.reshape(1, 1), loss))
        return parts

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        logits, target = self._in_torch(given["input"]), self._in_torch(given["target"])
        return {"torch": lambda: (torch.nn.functional.cross_entropy(logits, target), None, None, None)}


@dataclass(frozen=True, kw_only=True)
class CrossEntropyBackward(_Loss):
    """Its gradient."""

    plan_type = CrossEntropyBackwardPlan

    def descriptor(self) -> CrossEntropyBackwardDescriptor:
        return CrossEntropyBackwardDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        logits = self._logits(draw)
        sums = np.log(np.exp(logits.astype(np.float32)).sum(1))
        return {
            "grad_output": draw.normal((1, 1), self.element),
            "input": logits,
            "target": self._targets(draw),
            "log_sum_exp": sums.astype(self._total().dtype),
            "total_weight": self._total(),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": ((self.n, self.c, self._d), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        rows, places = self._chosen(draw)
        logits = inputs["input"][rows][:, :, places]
        target, sums = (inputs[name][rows][:, places] for name in ("target", "log_sum_exp"))
        expected = definitions.cross_entropy_backward(
            inputs["grad_output"], logits, target, None, -100, "mean", 0.0, sums, inputs["total_weight"]
        )
        return [Part(0, lambda gradient: gradient.reshape(self.n, self.c, -1)[rows][:, :, places], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        target, total = self._in_torch(given["target"]), given["total_weight"].to(given["grad_output"].dtype).view(())
        gradient, logits = given["grad_output"].view(()), self._in_torch(given["input"])
        shares = torch.log_softmax(logits, 1)
        backward = torch.ops.aten.nll_loss2d_backward if self.sides else torch.ops.aten.nll_loss_backward

        def call() -> tuple[Any, ...]:
            slopes = backward(gradient, shares, target, None, 1, -100, total)
            return (torch.ops.aten._log_softmax_backward_data(slopes, shares, 1, shares.dtype),)

        return {"torch": call}


# ---- rows

ORDER = 75

_ONCE = (Limit("light", 1.6), Limit("peer", 1.0))

_IMAGES: dict[str, Any] = dict(n=8, c=21, sides=(512, 512))
_WORDS: dict[str, Any] = dict(n=8192, c=50257)
_CLASSES: dict[str, Any] = dict(n=65536, c=1000)
_FEW: dict[str, Any] = dict(n=1048576, c=10)

CUDA = (
    Row(CrossEntropy(**_IMAGES), limits=(*us(110), *NO_SLOWER), headline=True),
    Row(CrossEntropyBackward(**_IMAGES), limits=(*us(160), *_ONCE), headline=True),
    Row(CrossEntropy(**_IMAGES, element="bf16"), limits=NO_SLOWER),
    Row(CrossEntropyBackward(**_IMAGES, element="bf16"), limits=NO_SLOWER),
    Row(CrossEntropy(**_WORDS), limits=NO_SLOWER),
    Row(CrossEntropyBackward(**_WORDS), limits=NO_SLOWER),
    Row(CrossEntropy(**_WORDS, element="bf16"), limits=NO_SLOWER),
    Row(CrossEntropy(**_CLASSES), limits=NO_SLOWER),
    Row(CrossEntropyBackward(**_CLASSES), limits=_ONCE),
    Row(CrossEntropy(**_FEW), limits=NO_SLOWER),
    Row(CrossEntropyBackward(**_FEW), limits=NO_SLOWER),
    Row(NllLoss(**_IMAGES), limits=NO_SLOWER, headline=True),
    Row(NllLossBackward(**_IMAGES), limits=_ONCE, headline=True),
    Row(NllLoss(n=8192, c=1000), limits=NO_SLOWER),
    Row(NllLossBackward(n=8192, c=1000), limits=NO_SLOWER),
    Row(NllLoss(n=256, c=1000), limits=NO_SLOWER),
)

CPU = (
    on_cpu(CrossEntropy(n=2, c=21, sides=(128, 128)), NO_SLOWER),
    on_cpu(CrossEntropyBackward(n=2, c=21, sides=(128, 128)), NO_SLOWER),
    on_cpu(NllLoss(n=2, c=21, sides=(128, 128))),
    on_cpu(NllLossBackward(n=2, c=21, sides=(128, 128))),
)
