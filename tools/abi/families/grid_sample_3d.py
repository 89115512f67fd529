# SPDX-License-Identifier: Apache-2.0
"""grid_sample_3d and its gradients, as the ABI states them; the options are those of grid_sample_2d_ex."""

from __future__ import annotations

from tools.abi.families.grid_sample import INPUTS, OPTIONS
from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Tensor, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "volumes in the batch"),
    extent("c", "channels"),
    extent("input_d", "input depth in voxels"),
    extent("input_h", "input height in voxels"),
    extent("input_w", "input width in voxels"),
    extent("output_d", "output depth in samples"),
    extent("output_h", "output height in samples"),
    extent("output_w", "output width in samples"),
    OPTIONS,
)
_GRID = Tensor(
    "grid",
    "input",
    "C",
    ("n", "output_d", "output_h", "output_w", "3"),
    "sampling positions (x, y, z); -1 and 1 as align_corners says",
)
_VOLUMES = ("n", "c", "input_d", "input_h", "input_w")
_SAMPLES = ("n", "c", "output_d", "output_h", "output_w")
_BAD_DATA = (
    "A NaN coordinate gives a NaN output; its gradient is dropped and its grad_grid is 0. An infinite coordinate is "
    "outside (zeros), at the border (border), or as a NaN (reflection). Finite ones follow the rule, however far they "
    "are, unless their position overflows, which is infinite. A tap of weight 0 does not exist, and where a position "
    "does not move with its coordinate grad_grid is 0, so that 0 times infinity cannot leak."
)
_NO_VOXELS = "No voxels: padding modes other than zeros are status 2."
_SOURCE = (
    "torch.nn.functional.grid_sample (2.11) of five dimensions, whose mode bilinear is trilinear. Differs: bad "
    "coordinates; torch gives the border's voxel, or reads anywhere."
)
# At most; tests/test_workspace.py holds both libraries to it.
_SCRATCH = (
    "On CUDA 68 bytes a sample and 1 a voxel, rounded up to tiles of 8 x 8 x 4, and for grad_grid of more than "
    "64 channels 12 bytes (f64: 24) a sample for every 64. Mode nearest, where 31 bits count all samples and voxels: "
    "13 bytes a sample, 8 a voxel, and 128 for each of at least 65,536 samples. On the CPU 152 bytes a sample (f64: "
    "208) and 4 a voxel of one volume. And 1 KiB; twice that where 32 bits do not count the taps of a volume's samples."
)

ORDER = 25
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="grid_sample_3d",
        family="grid_sample_3d",
        summary="Samples of volumes at the grid's positions: output[n, c, i, j, k] = input[n, c] at grid[n, i, j, k].",
        parameters=(
            *_SCALARS,
            Tensor("input", "input", "T", (INPUTS, *_VOLUMES[1:]), "volumes"),
            _GRID,
            Tensor("output", "output", "T", _SAMPLES, "samples"),
        ),
        variants=IMAGE_FLOATS,
        empty=f"An empty output: success. No voxels, zeros outside: output is 0 (NaN at NaN coordinates). {_NO_VOXELS}",
        bad_data=_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE + "Taps in order (z0 y0 x0), (z0 y0 x1), (z0 y1 x0) to (z1 y1 x1), of weight z (y x).",
        source=_SOURCE,
    ),
    Operator(
        name="grid_sample_3d_backward",
        family="grid_sample_3d",
        summary="Gradients of grid_sample_3d with respect to its input, its grid, or both.",
        parameters=(
            *_SCALARS,
            Tensor("grad_output", "input", "T", _SAMPLES, "gradient of the samples"),
            Tensor("input", "input", "T", (INPUTS, *_VOLUMES[1:]), "volumes of the forward call"),
            _GRID,
            Tensor(
                "grad_input",
                "output",
                "T",
                ("n if gradients != 2 else 0", *_VOLUMES[1:]),
                "every element is written, unless gradients is 2",
            ),
            Tensor(
                "grad_grid",
                "output",
                "C",
                ("n if gradients != 1 else 0", *_GRID.shape[1:]),
                "every element is written, unless gradients is 1",
            ),
        ),
        variants=IMAGE_FLOATS,
        empty=f"No samples: grad_input is all zeros. c = 0: grad_grid is all zeros. {_NO_VOXELS}",
        bad_data=_BAD_DATA,
        workspace=f"grad_grid alone: none. Else: {_SCRATCH}",
        determinism=BIT_STABLE
        + "A voxel owns its sum: samples ascending, partial sums of 256 terms; grad_grid sums taps in order, then "
        "channels ascending in partial sums of 64. Either gradient alone has the bits that it has beside the other. "
        "Mode nearest: grad_grid is 0.",
        source=_SOURCE,
    ),
)
