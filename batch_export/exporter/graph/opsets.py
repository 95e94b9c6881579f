"""The opsets that the exporter writes, and the one that torchlib's functions are written in."""

from __future__ import annotations

LOWEST_OPSET = 18
HIGHEST_OPSET = 25
TORCHLIB_OPSET = 18
"""The opset that torchlib's functions are written in."""
