"""What a model's builder is called with: the config's arguments, once it is sure that it takes them.

A `ModelSpec` and the callable arrive, keyword arguments leave, or a `ModelError` that names the key and the nearest
right one. Nothing is called here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

from batch_export.config.model import RESERVED_KEYS
from batch_export.errors import ModelError
from batch_export.spec import ModelSpec
from batch_export.words import did_you_mean, nearest

BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MISTYPED = 0.8
"""How alike a key of ours is that was surely meant: `gaurds` is, `num_inputs` and `timesteps` are not."""


def fitting_arguments(spec: ModelSpec, builder: Any) -> dict[str, Any]:
    """Returns the builder's arguments; a parameter called `seed` is given the config's seed, where that names one.

    They are copies: a model that turns its list of widths round in place would else change the spec, of which keys and
    the next model are made.

    Raises:
        ModelError: it does not take one of them, or needs another; or it takes any (`**kwargs`), names no such
            parameter, and the name is nearly one of the config's own keys.
    """
    arguments = copy.deepcopy(spec.arguments)
    try:
        signature = inspect.signature(builder)
    except (TypeError, ValueError):
        return arguments  # Builders written in C have no signature; the call itself will tell.
    wanted = signature.parameters.get("seed")
    if spec.seed_given and wanted is not None and wanted.kind in BY_KEYWORD:
        arguments["seed"] = spec.seed
    parameters = signature.parameters.values()
    known = _by_keyword(signature)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        _refuse_mistyped(spec, [*known, *_of_classes(builder)])
    else:
        for key in spec.arguments:
            if key not in known:
                hint = did_you_mean(key, [*known, *RESERVED_KEYS]) or f" (it takes: {', '.join(known) or 'nothing'})"
                raise ModelError(f"model {spec.name!r}: its builder {spec.target} has no argument {key!r}{hint}")
    for parameter in parameters:
        if parameter.kind in BY_KEYWORD and parameter.default is parameter.empty and parameter.name not in arguments:
            raise ModelError(
                f"model {spec.name!r}: its builder {spec.target} needs the argument {parameter.name!r}; "
                "set it in the config"
            )
    return arguments


def _refuse_mistyped(spec: ModelSpec, known: Sequence[str]) -> None:
    """Refuses what a builder's `**kwargs` would swallow and was surely meant for us (`gaurds: error`)."""
    for key in spec.arguments:
        near = nearest(key, RESERVED_KEYS, 1, least=_MISTYPED)
        if near and key not in known:
            raise ModelError(
                f"model {spec.name!r}: its builder {spec.target} names no parameter {key!r}, which its **kwargs would "
                f"take; did you mean {near[0]!r}? Next step: correct the config, or name the parameter in the builder"
            )


def _of_classes(builder: Any) -> list[str]:
    """What the classes say that a builder hands its `**kwargs` on to: the class itself or that of a class method."""
    owner = builder if inspect.isclass(builder) else getattr(builder, "__self__", None)
    if not inspect.isclass(owner):
        return []
    made = [vars(base)["__init__"] for base in owner.__mro__[:-1] if "__init__" in vars(base)]
    return [name for one in made if callable(one) for name in _by_keyword(inspect.signature(one))]


def _by_keyword(signature: inspect.Signature) -> list[str]:
    return [parameter.name for parameter in signature.parameters.values() if parameter.kind in BY_KEYWORD]
