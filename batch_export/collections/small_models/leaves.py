"""Guesses at a model's inputs as plain data: one tensor, and all that a call is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Entry = int | str

EXAMPLES = {"batch": 2, "seq": 9, "target": 6, "height": 64, "width": 64, "frames": 24, "samples": 1600, "past": 32}
"""Example sizes of axes, where the config asks for no others."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor: as `InputSpec`, without its path."""

    dtype: str
    shape: tuple[Entry, ...]
    low: int | None = None
    high: int | None = None
    fill: int | None = None

    def config(self) -> dict[str, Any]:
        """The leaf as a model's configuration writes it."""
        written: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.high is not None:
            written["range"] = [self.low or 0, self.high]
        if self.fill is not None:
            written["fill"] = self.fill
        return written

    def one_row(self) -> Leaf:
        """The leaf with a batch of 1 that is not free."""
        return replace(self, shape=tuple(1 if entry == "batch" else entry for entry in self.shape))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A guess at a model's inputs.

    Attributes:
        leaves: by parameter.
        sizes: example sizes of the axes that the leaves name.
        fixed: arguments that no input gives, see `completed.Completed`.
        modality: `image` or `audio` where places for its features go before the text.
        prefix: ids of special tokens that go before the text in any case.
        constants: arguments that are no tensors, passed as they are.
    """

    leaves: Mapping[str, Leaf]
    sizes: Mapping[str, int]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    modality: str = ""
    prefix: tuple[int, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
