# SPDX-License-Identifier: Apache-2.0
"""A program that trains torchvision's Mask R-CNN for some steps and says how long they took and what weights came out.

It knows nothing of pybaracuda: `python -m pybaracuda.torch --deterministic --seed 0` runs it as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torchvision.models.detection import maskrcnn_resnet50_fpn

# Parts of a profile: what is found in the names of their kernels, and what the host does often.
_PARTS = {
    "fills": "FillFunctor|Memset",
    "copies": "Memcpy|direct_copy",
    "nms": "nms",
    "roi_align of torchvision": "roi_align.*_kernel_impl|roi_align_(forward|backward)",
    "pybaracuda": "baracuda",
    "sorts and gathers": "sort|Sort|gather|index_elementwise",
}
_HOST_CALLS = ("cudaLaunchKernel", "cudaStreamSynchronize", "aten::item", "aten::fill_", "aten::nonzero")

_BOXES = 12
_RATE = 0.002


def _images(count: int, height: int, width: int, generator: torch.Generator) -> tuple[list[Any], list[Any]]:
    """Noise with boxes, each of a class of its own and with a mask that is the box without its corners."""
    images, targets = [], []
    rows, columns = torch.arange(height)[:, None], torch.arange(width)[None]
    for _ in range(count):
        sides = (torch.rand(_BOXES, 2, generator=generator) * 0.4 + 0.05) * torch.tensor([width, height])
        corners = torch.rand(_BOXES, 2, generator=generator) * (torch.tensor([width, height]) - sides)
        boxes = torch.cat([corners, corners + sides], 1)
        middle, half = corners + sides / 2, sides / 2
        across = (columns[None] - middle[:, 0, None, None]) / half[:, 0, None, None]
        down = (rows[None] - middle[:, 1, None, None]) / half[:, 1, None, None]
        masks = (across**4 + down**4 < 1).to(torch.uint8)
        labels = torch.randint(1, 91, (_BOXES,), generator=generator)
        images.append(torch.rand(3, height, width, generator=generator))
        targets.append({"boxes": boxes, "labels": labels, "masks": masks})
    return images, targets


def _weights(model: Any) -> str:
    """A hash of every parameter and buffer."""
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode() + tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


class _Training:
    """The model, its data and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        generator = torch.Generator().manual_seed(1)
        images, targets = _images(options.images, options.height, options.width, generator)
        self._on_cuda = options.device == "cuda"
        self._images = [image.to(options.device) for image in images]
        self._targets = [{name: each.to(options.device) for name, each in target.items()} for target in targets]
        sizes = {"min_size": min(options.height, options.width), "max_size": max(options.height, options.width)}
        model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, **sizes)
        self.model = model.to(options.device).train()
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        self._optimizer = torch.optim.SGD(parameters, lr=_RATE, momentum=0.9, weight_decay=1e-4)

    def wait(self) -> None:
        """Wait for the GPU."""
        if self._on_cuda:
            torch.cuda.synchronize()

    def step(self) -> Any:
        """Answer the loss, on the device."""
        loss = torch.stack(list(self.model(self._images, self._targets).values())).sum()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def _profiled(training: _Training, steps: int, on_cuda: bool) -> str:
    """Answer where the time of some steps goes, by kernels and by the host's work."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if on_cuda else [])]) as profile:
        for _ in range(steps):
            training.step()
        training.wait()
    averages = profile.key_averages()
    kernels = [each for each in averages if each.device_type == torch.autograd.DeviceType.CUDA]
    lines = [f"{steps} steps; milliseconds a step on the device: {_device_time(kernels, '') / steps:.2f}"]
    lines += [f"    {name}: {_device_time(kernels, part) / steps:.2f}" for name, part in _PARTS.items()]
    lines.append("calls a step: " + ", ".join(f"{name} {_calls(averages, name) / steps:g}" for name in _HOST_CALLS))
    orders = ["self_cuda_time_total"] if on_cuda else []
    tables = [averages.table(sort_by=order, row_limit=45) for order in [*orders, "self_cpu_time_total"]]
    return "\n".join([*lines, *tables])


def _device_time(kernels: Sequence[Any], part: str) -> float:
    """Milliseconds of the kernels in whose names this regular expression is found."""
    return float(sum(each.self_device_time_total for each in kernels if re.search(part, each.key)) / 1e3)


def _calls(averages: Sequence[Any], name: str) -> int:
    return sum(each.count for each in averages if each.key == name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train Mask R-CNN on made-up images.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--width", type=int, default=1216)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--flag", action="store_true", help="PyTorch's deterministic algorithms, warning where none is")
    parser.add_argument("--no-fill", action="store_true", help="spare the flag's fills of new tensors")
    parser.add_argument("--profile", type=Path, help="write a profile of five more steps here")
    parser.add_argument("--output", type=Path, required=True, help="write what was found here, as JSON")
    return parser.parse_args()


def _timed(call: Callable[[], Any], wait: Callable[[], None], times: int) -> tuple[list[float], list[float]]:
    """Milliseconds and losses of some steps."""
    milliseconds, losses = [], []
    for _ in range(times):
        wait()
        start = time.perf_counter()
        loss = call()
        wait()
        milliseconds.append((time.perf_counter() - start) * 1e3)
        losses.append(float(loss))
    return milliseconds, losses


def main() -> None:
    """Train, and write down what was found."""
    options = _arguments()
    torch.manual_seed(0)
    if options.flag:
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True, warn_only=True)
    if options.no_fill:
        torch.utils.deterministic.fill_uninitialized_memory = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training = _Training(options)
        first, losses = _timed(training.step, training.wait, options.warm_up)
        milliseconds, more = _timed(training.step, training.wait, options.steps)
    found = {
        "milliseconds": milliseconds,
        "warm_up": first,
        "losses": losses + more,
        "weights": _weights(training.model),
        "warnings": sorted({str(each.message).strip().splitlines()[0] for each in caught}),
        "megabytes": torch.cuda.max_memory_allocated() / 1e6 if options.device == "cuda" else None,
    }
    if options.profile is not None:
        options.profile.write_text(_profiled(training, 5, options.device == "cuda"), encoding="utf-8")
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
