"""What a model's builder is called with: the config's arguments, once it is sure that it takes them.

A `ModelSpec` and the callable arrive, keyword arguments leave, or a `ModelError` that names the key and the nearest
right one. Nothing is called here.
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Iterator
from typing import Any

from batch_export.config.model import RESERVED_KEYS
from batch_export.errors import ModelError
from batch_export.spec import ModelSpec
from batch_export.stages.nested_arguments import RECURSIVE
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
        _refuse_mistyped(spec, builder)
    else:
        for key in spec.arguments:
            if key not in known and key != RECURSIVE:
                hint = did_you_mean(key, [*known, *RESERVED_KEYS]) or f" (it takes: {', '.join(known) or 'nothing'})"
                raise ModelError(f"model {spec.name!r}: its builder {spec.target} has no argument {key!r}{hint}")
    for parameter in parameters:
        if parameter.kind in BY_KEYWORD and parameter.default is parameter.empty and parameter.name not in arguments:
            raise ModelError(
                f"model {spec.name!r}: its builder {spec.target} needs the argument {parameter.name!r}; "
                "set it in the config"
            )
    return arguments


def _refuse_mistyped(spec: ModelSpec, builder: Any) -> None:
    """Refuses what a builder's `**kwargs` would swallow and was surely meant for us (`gaurds: error`)."""
    for key in spec.arguments:
        near = nearest(key, RESERVED_KEYS, 1, least=_MISTYPED)
        if near and not _is_named(key, builder):
            raise ModelError(
                f"model {spec.name!r}: its builder {spec.target} names no parameter {key!r}, which its **kwargs would "
                f"take; did you mean {near[0]!r}? Next step: correct the config, or name the parameter in the builder"
            )


def _is_named(key: str, builder: Any) -> bool:
    """Whether a builder, or what it hands its `**kwargs` on to, names a parameter; true where one cannot be asked."""
    for one in _called_with_them(builder):
        try:
            if key in _by_keyword(inspect.signature(one)) or key in _of_dicts(one):
                return True
        except Exception:  # no signature, as in C; or an annotation of the user's that raises
            return True
    return False


def _called_with_them(builder: Any) -> Iterator[Any]:
    """The builder, the function of a `functools.partial`, and a class with its bases: itself or a class method's."""
    yield builder
    if isinstance(builder, functools.partial):
        yield from _called_with_them(builder.func)
    owner = builder if inspect.isclass(builder) else getattr(builder, "__self__", None)
    if inspect.isclass(owner):
        for base in owner.__mro__[:-1]:
            yield from (vars(base)[name] for name in ("__new__", "__init__") if callable(vars(base).get(name)))


def _of_dicts(function: Any) -> list[str]:
    """The keys of the `TypedDict` in `**kwargs: Unpack[...]`."""
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.annotation
        if parameter.kind is parameter.VAR_KEYWORD and isinstance(kind, str) and "Unpack" in kind:
            kind = inspect.signature(function, eval_str=True).parameters[parameter.name].annotation
        if parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(kind) is typing.Unpack:
            return [name for one in typing.get_args(kind) for name in one.__annotations__]
    return []


def _by_keyword(signature: inspect.Signature) -> list[str]:
    return [parameter.name for parameter in signature.parameters.values() if parameter.kind in BY_KEYWORD]
