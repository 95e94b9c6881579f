"""`torch.istft` by as many operators as any length of its windows takes, and to a length that may be a free size.

Arrives: the arguments of a call. Leaves: the sound, or None where torch's own form will do, and where it refuses. torch
takes a plain number for the length, and its decomposition adds up the windows' squares one number of a window at a
time. What eager checks of the data (that the windows leave no gap) a file does not check.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> torch.Tensor | None:
    """Frames of windows laid over one another, divided by what their squares sum up to."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    counts = type(n_fft) is int and type(hop) is int and type(width) is int and 0 < width <= n_fft and hop > 0
    if return_complex or not counts or input.dim() not in (2, 3) or not input.is_complex():
        return None
    if window is not None and (window.is_complex() or tuple(window.shape) != (width,)):
        return None
    spectrum = input if input.dim() == 3 else input.unsqueeze(0)
    rows: Any = spectrum.shape[1]
    if not isinstance(rows, int) or rows != (n_fft if onesided is False else n_fft // 2 + 1):
        return None
    half = spectrum.narrow(1, 0, n_fft // 2 + 1)
    frames = torch.fft.irfft(half, n_fft, 1, "ortho" if normalized else "backward").transpose(1, 2)
    if window is None:
        window = torch.ones(width, dtype=frames.dtype, device=frames.device)
    left = (n_fft - width) // 2
    shape = functional.pad(window, (left, n_fft - width - left))
    count: Any = frames.shape[1]
    whole = n_fft + hop * (count - 1)
    starts = hop * torch.arange(count, device=frames.device)
    places = (starts.unsqueeze(1) + torch.arange(n_fft, device=frames.device)).reshape(-1)
    laid = (frames * shape).reshape(frames.shape[0], count * n_fft).t()
    sound = laid.new_zeros(whole, frames.shape[0]).index_add(0, places, laid).t()
    squares = shape.new_zeros(whole).index_add(0, places, (shape * shape).repeat(count))
    start = n_fft // 2 if center else 0
    if length is None:
        taken = whole - 2 * start
    else:  # beyond the last frame there is silence
        sound, squares = functional.pad(sound, (0, length)), functional.pad(squares, (0, length), value=1.0)
        taken = length
    found: torch.Tensor = sound.narrow(1, start, taken) / squares.narrow(0, start, taken)
    return found if input.dim() == 3 else found.squeeze(0)
