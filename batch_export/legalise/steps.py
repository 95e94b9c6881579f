"""The steps between neighbouring opsets, by the opset that each leads to."""

from __future__ import annotations

from collections.abc import Mapping

from batch_export.legalise import (
    step_8_to_7,
    step_9_to_8,
    step_10_to_9,
    step_11_to_10,
    step_12_to_11,
    step_13_to_12,
    step_13_to_14,
    step_14_to_13,
    step_15_to_14,
    step_15_to_16,
    step_16_to_15,
    step_17_to_16,
    step_17_to_18,
    step_18_to_17,
    step_18_to_19,
    step_19_to_18,
    step_19_to_20,
    step_20_to_19,
    step_21_to_20,
    step_23_to_22,
    step_24_to_23,
    step_25_to_24,
    step_26_to_25,
    step_27_to_26,
    step_28_to_27,
)
from batch_export.legalise.rules import Rules

LOWEST, WHOLE, HIGHEST = 7, 13, 28
"""The opsets that a model can be brought to: from `WHOLE` on any model of the exporter's but for a few operators, below
that where its operators have a form."""

DOWN: Mapping[int, Rules] = {
    27: step_28_to_27.RULES,
    26: step_27_to_26.RULES,
    25: step_26_to_25.RULES,
    24: step_25_to_24.RULES,
    23: step_24_to_23.RULES,
    22: step_23_to_22.RULES,
    20: step_21_to_20.RULES,
    19: step_20_to_19.RULES,
    18: step_19_to_18.RULES,
    17: step_18_to_17.RULES,
    16: step_17_to_16.RULES,
    15: step_16_to_15.RULES,
    14: step_15_to_14.RULES,
    13: step_14_to_13.RULES,
    12: step_13_to_12.RULES,
    11: step_12_to_11.RULES,
    10: step_11_to_10.RULES,
    9: step_10_to_9.RULES,
    8: step_9_to_8.RULES,
    7: step_8_to_7.RULES,
}
"""A step that has no rules leaves all nodes as they are."""

UP: Mapping[int, Rules] = {
    14: step_13_to_14.RULES,
    16: step_15_to_16.RULES,
    18: step_17_to_18.RULES,
    19: step_18_to_19.RULES,
    20: step_19_to_20.RULES,
}
