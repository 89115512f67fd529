# SPDX-License-Identifier: Apache-2.0
"""Every exception class, provoked through a C function that really fails, and what it carries."""

from __future__ import annotations

import copy
import ctypes
import pickle
from typing import Any

import numpy as np
import pytest

import pybaracuda
from pybaracuda import _errors, _library, _machine
from pybaracuda._kernel import NO_SCRATCH

RUN = "baracuda_kernels_roi_align_backward_f32_run"
SCALARS = (1, 1, 4, 4, 1, 2, 2, 1.0, 2, 1)


def arrays() -> dict[str, Any]:
    return {
        "grad_output": np.ones((1, 1, 2, 2), np.float32),
        "rois": np.array([[0, 0, 0, 3, 3]], np.float32),
        "grad_input": np.full((1, 1, 4, 4), np.nan, np.float32),
    }


def call(scalars: tuple[Any, ...] = SCALARS, tail: tuple[Any, ...] = (None, 0, None), **moved: Any) -> tuple[int, str]:
    """Run the raw C function; answer its status and this thread's text."""
    raw = pybaracuda.raw("cpu")
    pointers = [moved.get(name, array.ctypes.data) for name, array in KEPT.items()]
    status = getattr(raw, RUN)(*scalars, *pointers, *tail)
    return status, raw.baracuda_kernels_last_error().decode()


KEPT = arrays()

STATUSES = [
    (0, None, {}, ""),
    (1, pybaracuda.MisalignedOperandError, {"rois": KEPT["rois"].ctypes.data + 1}, "rois is at"),
    (2, pybaracuda.InvalidProblemError, {"rois": None}, "rois is NULL"),
    (2, pybaracuda.InvalidProblemError, {"scalars": (-1, *SCALARS[1:])}, "n is -1"),
    (2, pybaracuda.InvalidProblemError, {"tail": (None, 64, None)}, "workspace is NULL"),
    (3, pybaracuda.UnsupportedError, {"tail": (None, 0, 1)}, "stream is"),
    (
        4,
        pybaracuda.WorkspaceTooSmallError,
        {"tail": (KEPT["grad_input"].ctypes.data & ~15, 1, None)},
        "workspace has 1",
    ),
]


@pytest.mark.parametrize(("status", "kind", "changes", "text"), STATUSES, ids=[f"{s[0]}-{s[3][:12]}" for s in STATUSES])
def test_statuses_become_classes(status: int, kind: Any, changes: dict[str, Any], text: str) -> None:
    found, detail = call(**changes)
    assert found == status
    assert text in detail
    if kind is None:
        assert detail == ""
        return
    assert detail.startswith("roi_align_backward_f32: ")
    error = _errors.from_status(found, RUN, detail, needed=7, got=1)
    assert type(error) is kind
    assert (error.status, error.symbol, error.detail, str(error)) == (status, RUN, detail, detail)
    if kind is pybaracuda.WorkspaceTooSmallError:
        assert (error.needed, error.got) == (7, 1)  # type: ignore[attr-defined]


def plan() -> Any:
    return pybaracuda.RoiAlignBackwardPlan.select(
        pybaracuda.RoiAlignBackwardDescriptor(1, 1, 4, 4, 1, 2, 2, 1.0, 2, True)
    )


def test_misaligned_operand_through_a_plan() -> None:
    given = arrays()
    rois = given.pop("rois")
    with pytest.raises(pybaracuda.MisalignedOperandError, match=r"rois is at .* aligned to 4 bytes") as caught:
        plan().run(**given, rois=(rois.ctypes.data + 2, rois.nbytes))
    assert caught.value.status == 1
    assert caught.value.symbol == "baracuda_kernels_roi_align_backward_f32_run_packed"


def test_invalid_problem_through_a_plan_and_a_function() -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="h is -4; wanted at least 0") as caught:
        pybaracuda.RoiAlignBackwardPlan.select(pybaracuda.RoiAlignBackwardDescriptor(1, 1, -4, 4, 1, 2, 2))
    assert caught.value.status == 2
    assert caught.value.symbol == "baracuda_kernels_roi_align_backward_f32_can_implement"
    given = arrays()
    with pytest.raises(pybaracuda.InvalidProblemError, match="h is -4; wanted at least 0"):
        pybaracuda.roi_align_backward(given["grad_output"], given["rois"], (1, 1, -4, 4))
    with pytest.raises(pybaracuda.InvalidProblemError, match="grad_input is NULL"):
        plan().run(grad_output=given["grad_output"], rois=given["rois"], grad_input=(0, 64))


def test_unsupported_through_a_plan() -> None:
    # No Python argument leads a CPU plan to a stream, so the addresses are given by hand.
    ready = plan()
    pointers = [array.ctypes.data for array in KEPT.values()]
    with pytest.raises(pybaracuda.UnsupportedError, match=r"^roi_align_backward_f32: stream is") as caught:
        ready.kernel.invoke(pointers, NO_SCRATCH, 0xBAD)
    assert caught.value.status == 3
    assert caught.value.symbol == "baracuda_kernels_roi_align_backward_f32_run_packed"


def test_workspace_too_small_through_a_plan() -> None:
    ready = plan()
    scratch = np.zeros(64, np.uint8)
    aligned = scratch[-scratch.ctypes.data % 16 :][:16]
    with pytest.raises(pybaracuda.WorkspaceTooSmallError) as caught:
        ready.run(workspace=aligned, **arrays())
    assert (caught.value.status, caught.value.needed, caught.value.got) == (4, ready.workspace_size, 16)


def test_buffer_too_small_through_a_plan() -> None:
    given = arrays()
    with pytest.raises(pybaracuda.BufferTooSmallError, match="rois has 4 elements; wanted at least 5") as caught:
        plan().run(**{**given, "rois": given["rois"][0, :4]})
    assert (caught.value.status, caught.value.needed, caught.value.got) == (None, 5, 4)


def test_internal_error_when_scratch_cannot_be_had() -> None:
    # Two billion boxes want more bytes of tables than an address space has; no tensor is touched before that.
    descriptor = pybaracuda.RoiAlignBackwardDescriptor(1, 1, 2**15, 2**15, 2**31 - 1, 2**14, 2**14, 1.0, 1, True)
    huge = pybaracuda.RoiAlignBackwardPlan.select(descriptor)
    assert huge.workspace_size > 2**47
    tensors = {spec.name: ((place + 1) << 61, spec.nbytes) for place, spec in enumerate(huge.tensors)}
    with pytest.raises(pybaracuda.InternalError, match="no memory for") as caught:
        huge.run(**tensors)
    assert caught.value.status == 5


def test_a_cuda_plan_without_a_device_fails_with_a_reason() -> None:
    problem = pybaracuda.backend_problem("cuda")
    assert pybaracuda.backend_available("cuda") == (problem is None)
    descriptor = pybaracuda.RoiAlignDescriptor(1, 1, 4, 4, 1, 2, 2)
    preference = pybaracuda.PlanPreference(prefer_backend="cuda")
    if problem is not None and "library is not installed" in problem:
        with pytest.raises(pybaracuda.BackendUnavailableError, match="BARACUDA_CUDA=ON") as missing:
            pybaracuda.RoiAlignPlan.select(descriptor, preference=preference)
        assert str(missing.value) == problem
        return
    ready = pybaracuda.RoiAlignPlan.select(descriptor, preference=preference)
    if problem is None:
        assert ready.sku.arch.startswith("sm_")
        return
    with pytest.raises(pybaracuda.BackendUnavailableError) as unavailable:
        _ = ready.sku
    assert str(unavailable.value) == problem
    given = arrays()
    tensors = {
        "input": (given["grad_input"].ctypes.data, 64),
        "rois": (given["rois"].ctypes.data, 20),
        "output": (given["grad_output"].ctypes.data, 16),
    }
    with pytest.raises(pybaracuda.InternalError, match=r"roi_align_f32: \S+") as caught:
        ready.run(**tensors)
    assert caught.value.status == 5


def test_the_driver_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        """A driver of a given version with a given number of devices."""

        def __init__(self, version: int, devices: int, start: int = 0) -> None:
            self.version, self.devices, self.start = version, devices, start

        def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
            out._obj.value = self.version
            return 0

        def cuInit(self, flags: int) -> int:  # noqa: N802
            return self.start

        def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
            out._obj.value = self.devices
            return 0

        def cuGetErrorName(self, code: int, out: Any) -> int:  # noqa: N802
            out._obj.value = b"CUDA_ERROR_NO_DEVICE"
            return 0

    def missing() -> Any:
        raise OSError("libcuda.so.1: cannot open shared object file")

    for driver, text in (
        (missing, "no NVIDIA driver is installed"),
        (lambda: Driver(12040, 1), "it supports CUDA 12.4, and CUDA 13.0 (driver 580) is needed"),
        (lambda: Driver(13000, 1, start=100), "cannot start: CUDA_ERROR_NO_DEVICE (100)"),
        (lambda: Driver(13000, 0), "sees no device"),
    ):
        monkeypatch.setattr(_machine, "_driver", driver)
        problem = _machine.cuda_problem()
        assert problem is not None
        assert text in problem
    monkeypatch.setattr(_machine, "_driver", lambda: Driver(13010, 2))
    assert _machine.cuda_problem() is None


def test_the_hierarchy() -> None:
    base = pybaracuda.BaracudaError
    for name in _errors.__all__:
        assert issubclass(getattr(pybaracuda, name), base)
    for kind in (
        pybaracuda.InvalidProblemError,
        pybaracuda.WorkspaceTooSmallError,
        pybaracuda.BufferTooSmallError,
    ):
        assert issubclass(kind, ValueError)
    assert issubclass(pybaracuda.UnsupportedError, NotImplementedError)
    for kind in (pybaracuda.MisalignedOperandError, pybaracuda.InternalError, pybaracuda.BackendUnavailableError):
        assert not issubclass(kind, ValueError | TypeError | NotImplementedError)


def test_errors_survive_pickling() -> None:
    # As they must to leave a worker process.
    for error in (
        _errors.from_status(4, "symbol", "text", needed=9, got=8),
        _errors.from_status(2, "symbol", "text"),
        pybaracuda.BufferTooSmallError("text", needed=2, got=1),
        pybaracuda.BackendUnavailableError("text"),
    ):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error)
            assert str(again) == "text"
            assert vars(again) == vars(error)


def test_an_unknown_status_is_an_internal_error() -> None:
    error = _errors.from_status(77, "symbol", "")
    assert type(error) is pybaracuda.InternalError
    assert (error.status, error.detail) == (77, "symbol answered status 77")


def test_a_success_clears_the_text() -> None:
    status, detail = call(rois=None)
    assert (status, bool(detail)) == (2, True)
    assert call() == (0, "")


def test_texts_are_per_library_and_thread() -> None:
    library = _library.load("cpu")
    assert isinstance(library._last_error(), bytes)
    assert library._last_error.restype is ctypes.c_char_p
