# SPDX-License-Identifier: Apache-2.0
"""One plan of every operator, on the problem of the same operator in function_cases.py; nothing is tested here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from function_cases import PAD_MODES, Case, listed

import pybaracuda
from verify.dtypes import Array


class PlanCase(NamedTuple):
    """A problem whose answer an array function of test_arrays gives too."""

    plan: type[Any]
    descriptor: Any
    function: str
    # The plan's tensor names for the function's arrays, and for its outputs, in the function's order.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fields: tuple[str, ...]


def plan_cases(element: str = "f32") -> dict[str, PlanCase]:
    wide = "f64" if element == "f64" else "f32"
    roi = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True, "element": element}
    roi_fields = ("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w", "spatial_scale", "sampling_ratio", "aligned")
    grid_fields = ("n", "c", "ih", "iw", "oh", "ow", "element")
    pad_fields = ("mode", "input_shape", "pad_low", "pad_high", "element")
    segment_fields = ("num_inputs", "embedding_dim", "num_segments", "element")
    channel_fields = ("shape", "rank", "axis", "input_element", "output_element")
    return {
        "roi_align": PlanCase(
            pybaracuda.RoiAlignPlan,
            pybaracuda.RoiAlignDescriptor(2, 3, 6, 7, 3, 2, 3, **roi),
            "roi_align",
            ("input", "rois"),
            ("output",),
            (*roi_fields, "element"),
        ),
        "roi_align_backward": PlanCase(
            pybaracuda.RoiAlignBackwardPlan,
            pybaracuda.RoiAlignBackwardDescriptor(2, 3, 6, 7, 3, 2, 3, **roi),
            "roi_align_backward",
            ("grad_output", "rois"),
            ("grad_input",),
            (*roi_fields, "element"),
        ),
        "grid_sample_2d": PlanCase(
            pybaracuda.GridSamplePlan,
            pybaracuda.GridSampleDescriptor(2, 3, 6, 7, 4, 5, element),
            "grid_sample",
            ("input", "grid"),
            ("output",),
            grid_fields,
        ),
        "grid_sample_2d_backward": PlanCase(
            pybaracuda.GridSampleBackwardPlan,
            pybaracuda.GridSampleBackwardDescriptor(2, 3, 6, 7, 4, 5, element),
            "grid_sample_backward",
            ("grad_output", "input", "grid"),
            ("grad_input", "grad_grid"),
            grid_fields,
        ),
        "affine_grid_2d": PlanCase(
            pybaracuda.AffineGridPlan,
            pybaracuda.AffineGridDescriptor(2, 4, 5, wide),
            "affine_grid",
            ("theta",),
            ("grid",),
            ("n", "oh", "ow", "element"),
        ),
        "affine_grid_2d_backward": PlanCase(
            pybaracuda.AffineGridBackwardPlan,
            pybaracuda.AffineGridBackwardDescriptor(2, 4, 5, wide),
            "affine_grid_backward",
            ("grad_grid",),
            ("grad_theta",),
            ("n", "oh", "ow", "element"),
        ),
        "pad_constant": PlanCase(
            pybaracuda.PadPlan,
            pybaracuda.PadDescriptor((2, 3, 6, 7), (0, 1, 2, 0), (1, 0, 1, 3), value=-1.5, element=element),
            "pad",
            ("input",),
            ("output",),
            pad_fields,
        ),
        "pad_constant_backward": PlanCase(
            pybaracuda.PadBackwardPlan,
            pybaracuda.PadBackwardDescriptor((2, 3, 6, 7), (0, 1, 2, 0), (1, 0, 1, 3), element=element),
            "pad_backward",
            ("grad_output",),
            ("grad_input",),
            pad_fields,
        ),
        **{
            f"pad_{mode}": PlanCase(
                pybaracuda.PadPlan,
                pybaracuda.PadDescriptor((2, 3, 6, 7), (0, 1, 2, 0), (1, 0, 1, 3), mode, element=element),
                f"pad_{mode}",
                ("input",),
                ("output",),
                pad_fields,
            )
            for mode in PAD_MODES
        },
        **{
            f"pad_{mode}_backward": PlanCase(
                pybaracuda.PadBackwardPlan,
                pybaracuda.PadBackwardDescriptor((2, 3, 6, 7), (0, 1, 2, 0), (1, 0, 1, 3), mode, element=element),
                f"pad_{mode}_backward",
                ("grad_output",),
                ("grad_input",),
                pad_fields,
            )
            for mode in PAD_MODES
        },
        "pad_ex": PlanCase(
            pybaracuda.PadPlan,
            pybaracuda.PadDescriptor((2, 3, 6, 7), (0, 1, -2, 0), (1, -1, 1, 3), value=-1.5, element=element),
            "pad_ex",
            ("input",),
            ("output",),
            pad_fields,
        ),
        "pad_ex_backward": PlanCase(
            pybaracuda.PadBackwardPlan,
            pybaracuda.PadBackwardDescriptor((2, 3, 6, 7), (0, 1, -2, 0), (1, -1, 1, 3), "circular", element),
            "pad_ex_backward",
            ("grad_output",),
            ("grad_input",),
            pad_fields,
        ),
        "unsorted_segment_max": PlanCase(
            pybaracuda.UnsortedSegmentMaxPlan,
            pybaracuda.UnsortedSegmentMaxDescriptor(7, 5, 4, element),
            "unsorted_segment_max",
            ("input", "segment_ids"),
            ("output",),
            segment_fields,
        ),
        "unsorted_segment_max_backward": PlanCase(
            pybaracuda.UnsortedSegmentMaxBackwardPlan,
            pybaracuda.UnsortedSegmentMaxBackwardDescriptor(7, 5, 4, element),
            "unsorted_segment_max_backward",
            ("grad_output", "input", "segment_ids"),
            ("grad_input",),
            segment_fields,
        ),
        "dequantize_per_channel": PlanCase(
            pybaracuda.DequantizePerChannelPlan,
            pybaracuda.DequantizePerChannelDescriptor((2, 3, 4), 1, "s8", element),
            "dequantize_per_channel",
            ("input", "scale", "zero_point"),
            ("output",),
            channel_fields,
        ),
        "dequantize_per_channel_backward": PlanCase(
            pybaracuda.DequantizePerChannelBackwardPlan,
            pybaracuda.DequantizePerChannelBackwardDescriptor((2, 3, 4), 1, output_element=element),
            "dequantize_per_channel_backward",
            ("grad_output", "scale"),
            ("grad_input",),
            channel_fields,
        ),
    }


def tensors_of(case: PlanCase, call: Case) -> tuple[dict[str, Array], list[Array], list[Array]]:
    """All of a plan's tensors by name, the outputs among them, and what they must hold after a run."""
    expected = listed(call())
    outputs = [np.frombuffer(b"\xa5" * each.nbytes, each.dtype).reshape(each.shape).copy() for each in expected]
    named = dict(zip(case.inputs, call.arrays.values(), strict=True))
    named.update(zip(case.outputs, outputs, strict=True))
    return named, outputs, expected
