"""The steps between neighbouring opsets, by the opset that each leads to."""

from __future__ import annotations

from collections.abc import Mapping

from batch_export.legalise import (
    step_14_to_13,
    step_15_to_14,
    step_16_to_15,
    step_17_to_16,
    step_18_to_17,
)
from batch_export.legalise.rules import Rules

LOWEST, HIGHEST = 13, 28

DOWN: Mapping[int, Rules] = {
    17: step_18_to_17.RULES,
    16: step_17_to_16.RULES,
    15: step_16_to_15.RULES,
    14: step_15_to_14.RULES,
    13: step_14_to_13.RULES,
}
"""A step that has no rules leaves all nodes as they are."""

UP: Mapping[int, Rules] = {}
