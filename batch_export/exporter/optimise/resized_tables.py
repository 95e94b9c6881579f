"""Tables of images at another size: ONNX's Resize of a weight, computed with torch.

Arrives: a weight and what Resize is told. Leaves: the result, or None where torch's interpolation has no such form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_INTERPOLATIONS = {
    ("linear", "half_pixel"): ("bilinear", False),
    ("linear", "pytorch_half_pixel"): ("bilinear", False),
    ("linear", "align_corners"): ("bilinear", True),
    ("cubic", "half_pixel"): ("bicubic", False),
    ("cubic", "pytorch_half_pixel"): ("bicubic", False),
    ("cubic", "align_corners"): ("bicubic", True),
}
"""ONNX's mode and coordinates -> torch's mode, and whether corners are aligned."""


def resized(
    data: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    antialias: int = 0,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    axes: Sequence[int] | None = None,
    **_unused: object,
) -> Tensor | None:
    """A table of images at another size, `float32[n, channels, height, width]`, as eager interpolates it.

    The parameters are ONNX's inputs and attributes; None where torch has no such form.
    """
    form = _INTERPOLATIONS.get((mode, coordinate_transformation_mode))
    wanted: list[int] = [] if sizes is None else sizes.reshape(-1).tolist()
    is_plain = not antialias and not exclude_outside and axes is None and keep_aspect_ratio_policy == "stretch"
    if form is None or not is_plain or cubic_coeff_a != -0.75 or (scales is not None and scales.numel()):
        return None
    if data.dim() != 4 or data.dtype != torch.float32 or len(wanted) != 4 or min((*data.shape, *wanted)) < 1:
        return None
    if wanted[:2] != list(data.shape[:2]) or min(wanted[2:]) < 2:  # forms differ in what one pixel is made of
        return None
    return torch.nn.functional.interpolate(data, size=wanted[2:], mode=form[0], align_corners=form[1])
