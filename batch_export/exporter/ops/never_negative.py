"""Whether a number that a graph makes of sizes is ever below zero, as far as the nodes that make it say."""

from __future__ import annotations

from batch_export.exporter.graph.recorded_value import Size

_SAME = ("Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast")
_OF_ALL = ("Add", "Mul", "Min", "Concat")
_STEPS = 32


def is_never_negative(number: Size, steps: int = _STEPS) -> bool:
    """Whether a number, or each of a tensor's, is zero or more whatever the sizes are.

    Args:
        number: an integer, or the value of a graph that follows from sizes (int64, any shape).
        steps: how many nodes the search goes back.

    Returns:
        False also where the nodes do not tell.
    """
    if isinstance(number, int):
        return number >= 0
    known = number.const_value
    if known is not None:
        return bool((known.numpy() >= 0).all())
    node = number.producer()
    if node is None or not steps:
        return False
    given = [one for one in node.inputs if one is not None]
    if node.op_type in ("Shape", "Size"):
        return True
    if node.op_type in (*_SAME, "Gather", "Slice"):
        return is_never_negative(given[0], steps - 1)
    if node.op_type == "Mod":
        whole = "fmod" not in node.attributes or not node.attributes["fmod"].as_int()
        return whole and is_never_negative(given[1], steps - 1)
    if node.op_type == "Max":
        return any(is_never_negative(one, steps - 1) for one in given)
    if node.op_type in (*_OF_ALL, "Div"):
        return all(is_never_negative(one, steps - 1) for one in given)
    return False
