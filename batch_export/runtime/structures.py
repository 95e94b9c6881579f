"""Outputs that need not be tensors: told from those that are, or taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batch_export.errors import BatchExportError
from batch_export.numbers.values import Fed, TensorSequence, Value


class StructureError(BatchExportError):
    """An output of a file is a sequence or an optional value where a tensor is needed."""


def tensors(names: Sequence[str], values: Sequence[Fed]) -> list[Value]:
    """Returns outputs that are tensors all.

    Raises:
        StructureError: one is not; it is named.
    """
    found: list[Value] = []
    for name, value in zip(names, values, strict=True):
        if value is None or isinstance(value, TensorSequence):
            what = "an optional value that is not there" if value is None else "a sequence of tensors"
            raise StructureError(f"the output {name} is {what}; only tensors can be compared here")
        found.append(value)
    return found


def leaves(values: Iterable[Fed]) -> list[Value]:
    """Returns the tensors of outputs in order, with those of sequences; what is not there has none."""
    found: list[Value] = []
    for value in values:
        if isinstance(value, TensorSequence):
            found += value.items
        elif value is not None:
            found.append(value)
    return found
