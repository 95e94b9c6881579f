"""The opsets that the exporter writes, and the one that torchlib's functions are written in."""

from __future__ import annotations

from batch_export.legalise import steps

LOWEST_OPSET = steps.LOWEST
HIGHEST_OPSET = steps.HIGHEST
TORCHLIB_OPSET = 18
"""The opset that torchlib's functions are written in."""
