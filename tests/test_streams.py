# SPDX-License-Identifier: Apache-2.0
"""Array functions and streams: which one they take, and what is ordered on it.

NumPy's results are the reference here; whether they are right is tested with the operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from function_cases import FUNCTION, cases
from tolerance import assert_same_bits


@FUNCTION
def test_host_arrays_take_no_stream(name: str) -> None:
    for stream in (0, 1, object()):
        with pytest.raises(ValueError, match=r"stream: .* host memory"):
            cases()[name](stream=stream)


def test_streams_of_every_kind(on_cuda: str) -> None:
    import cupy
    from cuda.core import Device

    case = cases()["roi_align"]
    arrays = {name: cupy.asarray(values) for name, values in case.arrays.items()}
    cupy.cuda.Device().synchronize()
    expected = case()
    device = Device()
    device.set_current()
    ours = device.create_stream()
    theirs = cupy.cuda.Stream(non_blocking=True)
    for stream in (None, 0, 1, 2, int(ours.handle), ours, theirs):
        result = case(**arrays, stream=stream)
        cupy.cuda.Device().synchronize()
        assert_same_bits(cupy.asnumpy(result), expected)
    with theirs:
        result = case(**arrays)
        assert_same_bits(cupy.asnumpy(result), expected)
    for stream, error in (("0", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)):
        with pytest.raises(error, match="stream: "):
            case(**arrays, stream=stream)


def test_a_torch_stream_orders_conversions_too(on_cuda: str, torch: Any) -> None:
    case = cases(np.float16)["grid_sample_backward"]
    expected = case(grid=case.arrays["grid"].astype(np.float16))
    tensors = {name: torch.from_numpy(values).cuda() for name, values in case.arrays.items()}
    tensors["grid"] = tensors["grid"].half()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        results = case(**tensors, stream=stream)
        side.synchronize()
        for result, wanted in zip(results, expected, strict=True):
            assert_same_bits(result.cpu().numpy(), wanted)
    with torch.cuda.stream(side):
        results = case(**tensors)
    side.synchronize()
    for result, wanted in zip(results, expected, strict=True):
        assert_same_bits(result.cpu().numpy(), wanted)


def test_arrays_on_different_devices(on_cuda: str, torch: Any) -> None:
    case = cases()["roi_align"]
    on_device = torch.from_numpy(case.arrays["input"]).cuda()
    with pytest.raises(ValueError, match="boxes is in host memory, input is on cuda:0"):
        case(input=on_device)
    with pytest.raises(ValueError, match="boxes is on cuda:0, input is in host memory"):
        case(boxes=torch.from_numpy(case.arrays["boxes"]).cuda())
    with pytest.raises(ValueError, match="out is on cuda:0, input is in host memory"):
        case(out=torch.empty(3, 3, 2, 3).cuda())
