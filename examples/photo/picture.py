# SPDX-License-Identifier: Apache-2.0
"""Draws demo.png from the jobs' results; nothing is computed here but what a panel shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verify.dtypes import Array

from .padding import Padding
from .photo import as_image
from .region_pooling import RegionPooling
from .registration import Registration
from .roi_attention import BOXES, RoiAttention
from .scale_fit import ScaleFit

_WIDTH, _HEIGHT = 19, 11.05  # inches
_MARGIN = 0.5  # inches
_PHOTO_ASPECT = 600 / 512

_INK = "#e8e6e3"
_FAINT = "#8d8a86"
_PAPER = "#16181d"
_WARM = "#ffb454"
_COOL = "#59c2ff"
_STYLE: Any = {
    "figure.facecolor": _PAPER,
    "axes.facecolor": _PAPER,
    "savefig.facecolor": _PAPER,
    "text.color": _INK,
    "axes.labelcolor": _FAINT,
    "axes.edgecolor": "#3a3d45",
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "grid.color": "#2a2d35",
    "font.family": "DejaVu Sans",
}


class _Page:
    """A figure whose panels are placed in inches from the top left corner."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))

    def text(self, left: float, top: float, text: str, **options: Any) -> None:
        self.figure.text(left / self.width, 1 - top / self.height, text, va="top", **options)

    def panel(self, left: float, top: float, width: float, height: float, title: str, caption: str) -> Any:
        """Empty axes under two lines: the operator, and what is seen."""
        self.text(left, top - 0.5, title, fontsize=11.5, weight="bold")
        self.text(left, top - 0.26, caption, fontsize=9.5, color=_FAINT)
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box, anchor="NW")

    def image(self, left: float, top: float, width: float, image: Array, title: str, caption: str) -> Any:
        """A picture in a panel of the photo's shape, `width` inches wide."""
        axes = self.panel(left, top, width, width * _PHOTO_ASPECT, title, caption)
        axes.imshow(image, interpolation="antialiased")
        axes.set_axis_off()
        return axes

    def curve(self, left: float, top: float, width: float, height: float, title: str, caption: str) -> Any:
        """Axes with a logarithmic scale upwards and steps along."""
        axes = self.panel(left, top, width, height, title, caption)
        axes.set_yscale("log")
        axes.set_xlabel("step of gradient descent", loc="right")
        axes.grid(True, axis="y")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return axes


def _grey(planes: Array) -> Array:
    return np.asarray(planes.mean(axis=0))


def _anaglyph(red: Array, cyan: Array, covered: Array | None = None) -> Array:
    """Two pictures in one: red where only the first is bright, cyan where only the second is, grey where they agree."""
    image = np.stack([_grey(red), _grey(cyan), _grey(cyan)], axis=-1)
    if covered is not None:
        image = np.where(covered[..., None], image, 0.25 * image)
    return np.asarray(np.clip(image, 0, 1))


def _glow(photo: Array, gradient: Array, colour_map: str, percentile: float, power: float) -> Array:
    """The dimmed photo in grey with the gradient's size shining over it; a smaller power lifts small gradients."""
    from matplotlib import colormaps

    size = np.sqrt((gradient**2).sum(axis=0))
    top = float(np.percentile(size[size > 0], percentile)) if (size > 0).any() else 1.0
    part = np.clip(size / max(top, 1e-30), 0, 1) ** power
    base = 0.4 * np.repeat(_grey(photo)[..., None], 3, axis=2)
    return np.asarray(base * (1 - part[..., None]) + colormaps[colour_map](part)[..., :3] * part[..., None])


def _grown(planes: Array, reach: int) -> Array:
    """Every value spread over the square around it, so that single pixels are seen."""
    for axis in (-2, -1):
        planes = np.max([np.roll(planes, shift, axis) for shift in range(-reach, reach + 1)], axis=0)
    return planes


def _draw_losses(axes: Any, job: Registration) -> None:
    stages = [stage for stage, _ in job.losses]
    for number, stage in enumerate(dict.fromkeys(stages)):
        first, last = stages.index(stage), len(stages) - 1 - stages[::-1].index(stage)
        axes.axvspan(first - 0.5, last + 0.5, color=_COOL, alpha=0.04 + 0.07 * (number % 2), linewidth=0)
        # The curve falls from the upper left to the lower right; the names stand in the two free corners.
        low = first < 0.4 * len(stages)
        where = {"transform": axes.get_xaxis_transform(), "va": "bottom" if low else "top", "ha": "center"}
        axes.text((first + last) / 2, 0.03 if low else 0.97, stage, rotation=90, fontsize=8.5, color=_FAINT, **where)
    axes.plot([loss for _, loss in job.losses], color=_WARM, marker="o", markersize=3.5, linewidth=1.8)
    axes.set_xlim(-0.5, len(stages) - 0.5)


def _draw_errors(axes: Any, job: ScaleFit) -> None:
    axes.plot(job.errors, color=_WARM, linewidth=1.8)
    axes.axhline(job.rounding_error, color=_COOL, linewidth=1, linestyle=(0, (4, 3)))
    axes.text(
        len(job.errors) - 1, job.rounding_error * 1.1, "as first quantised", color=_COOL, fontsize=8.5, ha="right"
    )
    axes.set_xlim(0, len(job.errors) - 1)


def _draw_boxes(axes: Any, height: int, width: int) -> None:
    from matplotlib.patches import Rectangle

    for box in BOXES:
        corner = (box.left * width - 0.5, box.top * height - 0.5)
        extent = ((box.right - box.left) * width, (box.bottom - box.top) * height)
        axes.add_patch(Rectangle(corner, *extent, fill=False, edgecolor=_COOL, linewidth=0.9))
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)


def _split(upper: Array, lower: Array) -> Array:
    """One picture above the rising diagonal, the other below it."""
    height, width = upper.shape[:2]
    below = np.arange(width)[None, :] * height > (height - np.arange(height)[:, None]) * width
    return np.where(below[..., None], lower, upper)


def draw(
    path: Path,
    pixels: int,
    subtitle: str,
    photo: Array,
    registration: Registration,
    attention: RoiAttention,
    regions: RegionPooling,
    fit: ScaleFit,
    padding: Padding,
) -> None:
    """Write the picture of all jobs, so many pixels wide, in the format that the file's name ends in."""
    import matplotlib

    _, height, width = photo.shape
    with matplotlib.rc_context(_STYLE):
        page = _Page(_WIDTH, _HEIGHT)
        page.text(_MARGIN, 0.38, "Gradients on a photograph", fontsize=22, weight="bold")
        page.text(_MARGIN, 0.83, subtitle, fontsize=11, color=_FAINT)

        top, across = 1.78, 3.85
        lefts = [_MARGIN + (across + 0.28) * number for number in range(3)]
        page.image(lefts[0], top, across, as_image(registration.copy), "A copy", "turned, enlarged and moved")
        before = _anaglyph(photo, registration.copy)
        page.image(lefts[1], top, across, before, "Before", "photo in red, copy in cyan")
        after = _anaglyph(photo, registration.aligned, registration.covered)
        caption = f"corners off by {100 * registration.error:.1g} % of the way they had to go"
        page.image(lefts[2], top, across, after, "Registered", caption)
        left = lefts[2] + across + 0.85
        caption = f"mean square over shared pixels, at full size: {registration.loss_ratio:.0f} times smaller"
        title = "affine_grid, grid_sample: the loss"
        axes = page.curve(left, top, page.width - _MARGIN - left, across * _PHOTO_ASPECT, title, caption)
        _draw_losses(axes, registration)

        top, gap = top + across * _PHOTO_ASPECT + 1.0, 0.26
        across = (page.width - 2 * _MARGIN - 5 * gap) / 6
        lefts = [_MARGIN + (across + gap) * number for number in range(6)]
        shown = _glow(photo, attention.gradient, "inferno", 99.7, 0.35)
        caption = "where the contrast of six boxes looks"
        _draw_boxes(page.image(lefts[0], top, across, shown, "roi_align", caption), height, width)
        pooled = regions.maxima[regions.ids].T.reshape(photo.shape)
        caption = f"brightest values of {regions.num_regions} regions"
        page.image(lefts[1], top, across, as_image(pooled), "unsorted_segment_max", caption)
        landed = _grown(np.abs(regions.gradient.T.reshape(photo.shape)), max(height // 300, 1))
        shown = as_image(np.where(landed.max(axis=0) > 0, landed, 0.3 * _grey(photo)))
        page.image(lefts[2], top, across, shown, "its gradient", "one pixel per region and colour")
        shown = _split(as_image(padding.padded), _glow(padding.padded, padding.grad_output, "viridis", 99.0, 0.6))
        page.image(lefts[3], top, across, shown, "pad", "on a card; gradient of its roughness")
        found = (np.arange(width) < width // 2)[:, None]
        shown = np.where(found, as_image(fit.after), as_image(fit.before))
        page.image(lefts[4], top, across, shown, "dequantize_per_channel", "int8 tiles: scales found | scales lost")
        title, caption = "its scales", "error of the int8 photo"
        _draw_errors(page.curve(lefts[5] + 0.3, top, across - 0.3, across * _PHOTO_ASPECT, title, caption), fit)
        # JPEG: small letters stay clean when their colour is not sampled down.
        options = {"quality": 84, "subsampling": 0} if path.suffix.lower() in (".jpg", ".jpeg") else {}
        page.figure.savefig(path, dpi=pixels / _WIDTH, pil_kwargs=options)
