"""Which stored value goes into which input of a file: by name, or by position where the file has names of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batch_export.errors import BatchExportError
from batch_export.numbers.values import Value


class FeedError(BatchExportError):
    """A file has an input that no value can be found for."""


def feeds_for(input_names: Sequence[str], values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the value of each input.

    Args:
        input_names: the file's inputs in order.
        values: the model's inputs by name, in order; some may have no input in the file.

    Raises:
        FeedError: an input has no value of its name, and none at its position either.
    """
    feeds: dict[str, Value] = {}
    in_order = list(values.items())
    for position, name in enumerate(input_names):
        if name in values:
            feeds[name] = values[name]
            continue
        if len(input_names) != len(in_order) or in_order[position][0] in input_names:
            raise FeedError(
                f"the file's input {position} ({name!r}) is not one of the model's inputs "
                f"({', '.join(values) or 'none'}); export with these input names"
            )
        feeds[name] = in_order[position][1]
    return feeds
