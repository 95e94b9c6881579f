"""Opset 18 -> 19: GroupNormalization with a scale per group, which no later opset has, is written with others."""

from __future__ import annotations

from batch_export.legalise import step_18_to_17

RULES = {"GroupNormalization": step_18_to_17.RULES["GroupNormalization"]}
