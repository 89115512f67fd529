# SPDX-License-Identifier: Apache-2.0
"""Whole programs that train end with the same weights in fresh processes: examples/repeatable_training, each twice."""

from __future__ import annotations

import importlib

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

SAME = "two runs on pybaracuda's kernels end with the same weights (a)"
repeatable = importlib.import_module("examples.repeatable_training.run")


# Without a torchvision that goes with this torch there is no Mask R-CNN; that is no skip.
HERE = sorted(filter(repeatable.is_there, repeatable.PROGRAMS))


@pytest.mark.parametrize("program", HERE)
def test_weights_repeat(program: str, device: str) -> None:
    wanted, _ = repeatable.PROGRAMS[program]
    first, second = (repeatable.train(program, device, "ours") for _ in range(2))
    assert wanted <= first.ours
    assert first.weights == second.weights
    assert first.ours == second.ours
    assert first.milliseconds > 0


def test_programs_know_nothing_of_this_library() -> None:
    """Without it, the same program trains on PyTorch's kernels alone."""
    assert repeatable.train("graph_network", "cpu", "pytorch").ours == frozenset()


def test_with_pytorchs_flag(device: str) -> None:
    """The graph network's gradient by rows is refused nowhere; the spatial transformer's is, on a GPU."""
    assert repeatable.train("graph_network", device, "flag").ours == frozenset()
    if device == "cuda":
        with pytest.raises(repeatable.RefusedError, match="does not have a deterministic implementation"):
            repeatable.train("spatial_transformer", device, "flag")


def test_a_program_that_fails_is_named() -> None:
    with pytest.raises(repeatable.FailedError, match=r"(?s)no_such_program ended with status 1.*No such file"):
        repeatable.train("no_such_program", "cpu", "ours")


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        repeatable.main(["graph"])
    assert "there is no graph; wanted some of spatial_transformer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("weights", "ours", "begins", "status"),
    [
        (["a", "a", "b", "c"], True, f"{SAME}; PyTorch alone ends with others", 0),
        (["a", "a", *"bbbb"], True, f"{SAME}; so did 4 of PyTorch alone", 0),
        (["a", "b"], True, "FAILED: two runs ended with weights a and b", 1),
        (["a", "a"], False, "FAILED: aten::embedding_dense_backward, ", 1),
    ],
)
def test_its_line_says_what_happened(
    weights: list[str],
    ours: bool,
    begins: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = iter(weights)
    operators = frozenset(repeatable.PROGRAMS["graph_network"][0] if ours else ())
    monkeypatch.setattr(repeatable, "train", lambda *_: repeatable.Training(next(given), operators, 1.0))
    assert repeatable.main(["--device", "cpu", "graph_network"]) == status
    assert capsys.readouterr().out.startswith(f"graph_network, cpu: {begins}")
    assert next(given, None) is None
