# SPDX-License-Identifier: Apache-2.0
"""Programs of several processes on this library's kernels: DistributedDataParallel's ranks, a DataLoader's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.utils.data import DataLoader, Dataset
from torch_calls import ours

import pybaracuda.torch

SAMPLED = ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward")
STEPS = 4

# Knows nothing of this library, but for what it prints at the end.
PROGRAM = """
import hashlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import grid_sample


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.image = torch.nn.Parameter(torch.randn(1, 3, 16, 16))
        self.rows = torch.nn.Linear(3, 5)

    def forward(self, grid, names):
        seen = grid_sample(self.image, grid, align_corners=False)
        rows = self.rows(seen.flatten(2)[0].T)
        return torch.zeros(7, 5, device=rows.device).index_add(0, names, rows)


device, steps = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
if device == "cuda":
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
dist.init_process_group("gloo" if device == "cpu" else "nccl")
torch.manual_seed(5)
net = torch.nn.parallel.DistributedDataParallel(Net().to(device))
first = torch.cat([each.detach().flatten() for each in net.parameters()]).cpu()
torch.manual_seed(100 + rank)
# Without a momentum, so that what the ranks' gradients add up to is seen at every step.
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(steps):
    grid = torch.rand(1, 20, 21, 2).to(device) * 2 - 1
    names = torch.randint(0, 7, (420,)).to(device)
    optimizer.zero_grad()
    net(grid, names).square().mean().backward()
    optimizer.step()
weights = torch.cat([each.detach().flatten() for each in net.parameters()]).cpu()

import pybaracuda.torch

found = json.dumps({
    "rank": rank,
    "moved": float((weights - first).abs().max()),
    "weights": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
    "calls": {line.operator: [line.calls, line.ours] for line in pybaracuda.torch.report().lines},
})
with open(os.path.join(sys.argv[3], f"{rank}.json"), "w") as file:
    file.write(found)
dist.barrier()
# At the end of a busy machine's process Gloo's threads sometimes abort it, with no kernel of ours called.
os._exit(0)
"""


def train(folder: Path, device: str, environ: dict[str, str], launcher: Sequence[str]) -> list[Any]:
    """Train in two ranks that torchrun starts, and answer what each printed."""
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    run = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    command = [sys.executable, *launcher, "-m", *run, str(program), device, str(STEPS), str(folder)]
    # Two ranks on a few cores; the network stays out of it.
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, cwd=folder, env={**environ, **settings}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(2)]


@pytest.fixture(params=["gloo-cpu", "nccl-cuda"])
def device(request: pytest.FixtureRequest) -> str:
    found = str(request.param).partition("-")[2]
    if found == "cuda" and (not pybaracuda.backend_available("cuda") or torch.cuda.device_count() < 2):
        pytest.skip("fewer than two GPUs")
    return found


def test_ranks_end_with_the_same_weights_in_every_run(
    device: str, tmp_path: Path, as_installed: dict[str, str]
) -> None:
    launcher = ["-m", "pybaracuda.torch", "--deterministic"]
    runs = [train(tmp_path / name, device, as_installed, launcher) for name in ("first", "second")]
    for found in runs:
        for rank, one in enumerate(found):
            assert one["rank"] == rank
            assert one["deterministic"]
            assert one["moved"] > 0
            for operator in (*SAMPLED, "aten::index_add"):
                assert one["calls"][operator] == [STEPS, STEPS], one
    assert len({one["weights"] for found in runs for one in found}) == 1


def test_ranks_of_a_program_that_was_not_asked_for_stay_pytorchs(tmp_path: Path, as_installed: dict[str, str]) -> None:
    environ = {name: value for name, value in as_installed.items() if name != "PYBARACUDA_TORCH"}
    for one in train(tmp_path / "plain", "cpu", environ, []):
        assert one["calls"] == {}
        assert one["moved"] > 0


class Sums(Dataset[Any]):
    """Each item is what a worker computes, and how many of its calls were ours."""

    def __init__(self, rows: Any, names: Any) -> None:
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return 6

    def __getitem__(self, item: int) -> Any:
        total = torch.zeros(9, 4).index_add(0, self._names, self._rows * (item + 1))
        return total, os.getpid(), ours("aten::index_add")


@pytest.mark.parametrize("workers", [1, 2])
def test_forked_workers_compute_the_parents_bits(workers: int, rng: Any) -> None:
    rows = torch.from_numpy(rng.standard_normal((300, 4))).float()
    names = torch.from_numpy(rng.integers(0, 9, 300))
    items = Sums(rows, names)
    with pybaracuda.torch.install():
        expected = [items[item][0] for item in range(len(items))]
        before = ours("aten::index_add")
        for _ in range(2):
            loader = DataLoader(items, batch_size=None, num_workers=workers, multiprocessing_context="fork")
            found = list(loader)
            assert all(torch.equal(one, total) for one, (total, _, _) in zip(expected, found, strict=True))
            # A worker begins with the parent's counts, and each of its items is one call more.
            assert len({process for _, process, _ in found} - {os.getpid()}) == workers
            assert sorted(count - before for _, _, count in found) == sorted(
                1 + number // workers for number in range(len(items))
            )
        # What a worker does is not counted in its parent.
        assert ours("aten::index_add") == before
    with pybaracuda.torch.install(exclude=["index_add"]):
        loader = DataLoader(items, batch_size=None, num_workers=1, multiprocessing_context="fork")
        assert all(count == before for _, _, count in loader)
