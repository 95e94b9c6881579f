"""What a model gives, in the words of its axes: `logits float32[batch, 10]`.

Sizes of the outputs at several sizes of the axes arrive, one text for each output leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from batch_export.spec import AxisSpec
from batch_export.stages.probe.trial import Trial


def described(base: Trial, axes: Sequence[AxisSpec], run_at: Callable[[Mapping[str, int]], Trial]) -> tuple[str, ...]:
    """Names of outputs with dtypes and shapes; a size that follows an axis in no simple way is a `?`.

    Args:
        base: the run at the example sizes.
        axes: the free ones.
        run_at: runs the module at sizes of all axes.
    """
    example = {axis.name: axis.example for axis in axes}
    moved = {axis.name: [(size, run_at({**example, axis.name: size})) for size in axis.check] for axis in axes}
    told = []
    for place, output in enumerate(base.outputs):
        words = [
            _size(
                now,
                {name: [(s, t.outputs[place].shape[index]) for s, t in one] for name, one in moved.items()},
                example,
            )
            for index, now in enumerate(output.shape)
        ]
        told.append(f"{output.name}: {output.dtype}[{', '.join(words)}]")
    return tuple(told)


def _size(now: int, moved: Mapping[str, Sequence[tuple[int, int]]], example: Mapping[str, int]) -> str:
    follows = [name for name, pairs in moved.items() if any(size != now for _, size in pairs)]
    if not follows:
        return str(now)
    if len(follows) > 1:
        return "+".join(follows) if now == sum(example[name] for name in follows) else "?"
    (name,) = follows
    pairs = [(example[name], now), *moved[name]]
    for factor in (1, 2, 3, 4):
        rests = {size - factor * axis for axis, size in pairs}
        if len(rests) == 1:
            (rest,) = rests
            return f"{'' if factor == 1 else f'{factor}*'}{name}{f'{rest:+d}' if rest else ''}"
    for divisor in (2, 4, 8, 16, 32):
        if all(size == axis // divisor for axis, size in pairs):
            return f"{name}//{divisor}"
        if all(size == -(-axis // divisor) for axis, size in pairs):
            return f"ceil({name}/{divisor})"
    return "?"
