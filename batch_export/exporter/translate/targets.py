"""What a translation may be for: the targets of nodes in captured programs.

Arrives: a key of `custom_translation_table`. Leaves: nothing, or an error that says what to give in its place; such a
translation would never be asked for, and the file would have another one without a word.
"""

from __future__ import annotations

from typing import Any

import torch


def require_operator(target: Any) -> None:
    """Refuses what no captured program calls: text, a family of overloads, a function of torch's Python side.

    Raises:
        TypeError: with what to give in its place.
    """
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return
    if isinstance(target, torch._ops.OpOverloadPacket):
        names: list[str] = target.overloads()
        raise TypeError(
            f"custom_translation_table: torch.ops.{target} stands for several operators, and a program calls one of "
            f"them. Next step: give that one: {', '.join(f'torch.ops.{target}.{name}' for name in names)}"
        )
    name = getattr(target, "__name__", "")
    is_torchs = str(getattr(target, "__module__", None) or "torch").partition(".")[0] == "torch"
    if not callable(target) or (is_torchs and "sym_" not in name):
        raise TypeError(
            f"custom_translation_table: {target!r} is not an operator. Next step: give the operator itself, "
            "e.g. torch.ops.aten.add.Tensor"
        )
