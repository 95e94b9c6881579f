"""Arguments of a builder that calls of their own make, as Hydra's `instantiate` makes them: `encoder: {_target_:
my.Encoder, width: 3}`.

Plain data of a config arrives, with the function that finds what a dotted name stands for; what the builder is called
with leaves. `_args_` and `_partial_` are read as Hydra reads them, innermost first. With `_recursive_: false` beside
the builder's own `_target_` it gets the data as they are, to call `instantiate` itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from batch_export.errors import BatchExportError, ModelError
from batch_export.stages import for_config
from batch_export.words import class_and_line

TARGET, RECURSIVE = "_target_", "_recursive_"
_ARGUMENTS, _PARTIAL = "_args_", "_partial_"
_UNKNOWN = ("_convert_", RECURSIVE)


def made(name: str, arguments: Mapping[str, Any], find: Callable[[str], Any]) -> dict[str, Any]:
    """The arguments, with what the calls in them gave.

    Args:
        name: of the model, for errors.
        arguments: the builder's, by name.
        find: gives what a dotted name stands for, which can be called.

    Raises:
        ModelError: a call raised, or one of its words is not known here.
    """
    rest = {key: value for key, value in arguments.items() if key != RECURSIVE}
    if arguments.get(RECURSIVE) is False:
        return rest
    return {key: _made(name, key, value, find) for key, value in rest.items()}


def _made(name: str, where: str, value: Any, find: Callable[[str], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_made(name, f"{where}[{index}]", one, find) for index, one in enumerate(value))
    if not isinstance(value, Mapping):
        return value
    inner = {key: _made(name, f"{where}.{key}", one, find) for key, one in value.items()}
    if not isinstance(inner.get(TARGET), str):
        return inner
    for word in _UNKNOWN:
        if word in inner:
            raise ModelError(f"model {name!r}: {where!r} has the word {word!r} of Hydra's, which is not read here")
    target, positional, is_partial = inner.pop(TARGET), inner.pop(_ARGUMENTS, ()), inner.pop(_PARTIAL, False)
    try:
        call = find(target)
    except ModelError as error:
        raise ModelError(f"{error} (it is to make the argument {where!r})") from error
    try:
        if is_partial:
            return functools.partial(call, *positional, **inner)
        return for_config.called(call, *positional, **inner)
    except (BatchExportError, MemoryError):
        raise
    except Exception as error:
        raise ModelError(f"model {name!r}: {target}, which makes {where!r}, raised {class_and_line(error)}") from error
