"""Whether an exporter takes what its config says: the callable and the config's arguments arrive, nothing leaves.

What it is called with besides is ours and no argument of a config.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from batch_export.errors import UsageError
from batch_export.plugin import passed_on
from batch_export.words import did_you_mean


def require_known(
    name: str, exporter: Callable[..., Any], arguments: Mapping[str, Any], ours: Collection[str] = ()
) -> None:
    """Refuses arguments that the exporter, or the function that it hands them on to, does not have.

    Args:
        name: of the exporter.
        exporter: the callable.
        arguments: of its config.
        ours: parameters that are no arguments of a config.

    Raises:
        UsageError: there is one; the sentence has the nearest that exists.
    """
    target = passed_on(exporter)
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return  # some callables written in C do not say what they take
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    known = [one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY and one.name not in ours]
    unknown = next((argument for argument in arguments if argument not in known), None)
    if unknown is not None:
        near = did_you_mean(unknown, known) or (f"; there are {', '.join(known)}" if known else ", nor any of its own")
        raise UsageError(
            f"exporter {name!r} has no argument {unknown!r}{near}. Next step: correct its config, exporter/{name}.yaml"
        )
