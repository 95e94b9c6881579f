"""torch captures without taking sides on whether a free size is 0 or 1.

Arrives: nothing; a context is opened round a capture. Leaves: torch as it was. Without it torch takes every
free size for 2 or more, so that a model's own branch at 1 leaves no trace, guards on many sizes that it need not know
(`n >= 4` of a slice), and takes several times as long where sizes are computed from sizes. A free axis must still have
two elements or more in the example: at 1 torch takes sides all the same (see `examples.py`).

Even so torch's symbols are positive, so that `max(n, 1)` is `n` before anybody asks, and wrong at 0: here they are not
negative, no more. Some models cannot be captured so, e.g. where a mask of one row is cut to n rows, which are
`min(1, n)`, and added to n of them: they are captured with torch's symbols, and tried at 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch.fx.experimental import _config, symbolic_shapes

_SETTING = "backed_size_oblivious"
_MAKER = "make_symbol"


@contextlib.contextmanager
def size_oblivious(*, may_be_zero: bool = True) -> Iterator[bool]:
    """While open, torch's captures are size-oblivious, where this torch has that mode; it gives whether it has.

    Where torch makes its symbols in another way, or zero is not to be thought of, they stay positive: then 0 has to be
    tried like a size that a capture takes sides on, and the answer is no.
    """
    make: Callable[..., object] | None = getattr(symbolic_shapes, _MAKER, None) if may_be_zero else None
    has_mode = hasattr(_config, _SETTING)
    if make is not None:
        setattr(symbolic_shapes, _MAKER, lambda *args, **assumed: make(*args, **_may_be_zero(assumed)))
    try:
        with _config.patch({_SETTING: True}) if has_mode else contextlib.nullcontext():  # type: ignore[attr-defined]
            yield has_mode and make is not None
    finally:
        if make is not None:
            setattr(symbolic_shapes, _MAKER, make)


def _may_be_zero(assumed: dict[str, object]) -> dict[str, object]:
    """What is assumed of a symbol, with "not negative" in place of "positive"."""
    if not assumed.get("positive"):
        return assumed
    return {**{name: value for name, value in assumed.items() if name != "positive"}, "nonnegative": True}


def hangs_on_zero(error: BaseException) -> bool:
    """Whether a capture failed on a size that is simpler for whoever does not think of 0.

    Such are `max(1, n)`, `min(1, n)` and the length of `x[-1:]`, which is 1 unless there is nothing.
    """
    return any(written in str(error) for written in ("Max(1, ", "Min(1, ", "Max(0, "))
