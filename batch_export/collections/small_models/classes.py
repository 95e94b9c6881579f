"""A class whose arguments have names as a model's configuration: made small, called with guesses, and written down.

What a package's collection knows of its classes arrives as a `Classes`; the mapping that `conf/model/*.yaml` would hold
leaves, or an `UndescribedError` whose one sentence says why there is none. Runs in a child.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from batch_export.collections.small_models import signatures
from batch_export.collections.small_models.building import build, class_of, made
from batch_export.collections.small_models.calling import UndescribedError, first_taken, refuse_large, written
from batch_export.collections.small_models.errors_read import arguments_lacking
from batch_export.collections.small_models.importing import UnimportableError, imported
from batch_export.collections.small_models.leaves import Attempt
from batch_export.collections.small_models.reasons import Reasons
from batch_export.collections.small_models.shrinking import DEGREES, shrink
from batch_export.collections.small_models.signatures import Option

TARGET = "batch_export.collections.small_models.building.build"
_SURELY_SMALL = DEGREES[:2]
"""Degrees at which a class is built that does not say how large it is without being built."""

OptionsOf = Callable[[nn.Module, Mapping[str, Any], str], Sequence[Option]]
"""From a model, its arguments (with the defaults of its class) and the name of a parameter of forward."""


@dataclass(frozen=True, slots=True)
class Classes:
    """What a collection knows of its classes by the names of their parameters.

    Attributes:
        library: import name of the package.
        module: where its classes are.
        arguments: sets of arguments to try, for the parameters of `__init__` that have these names: those without a
            default take them, and those named in `overriding` take them in place of a default of the same kind. Where
            that makes no model, those whose default is None take them, too.
        options: what a parameter of forward may be given.
        overriding: parameters whose default is not kept, be it None.
        wanted: parameters of forward that are given where it has them.
        sizes: example sizes of axes, beside those that every collection has.
    """

    library: str
    module: str
    arguments: Sequence[Mapping[str, Any]]
    options: OptionsOf
    overriding: Collection[str] = ()
    wanted: Collection[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


def describe(classes: Classes, name: str) -> dict[str, Any]:
    """Returns the configuration of a model by the name of its class.

    Raises:
        UndescribedError: no degree of shrinking gives a model that eager runs, or the package cannot be imported.
    """
    try:
        kind = class_of(classes.module, name)
    except UnimportableError as error:
        raise UndescribedError(str(error)) from error
    reasons = Reasons()
    tried: list[dict[str, Any]] = []
    for degree in DEGREES:
        for known, fills in itertools.product(classes.arguments, (False, True)):
            with reasons.noting(degree):
                arguments = _arguments(kind, classes, known, degree, fills)
                if arguments in tried:
                    continue
                tried.append(arguments)
                _refuse_large(kind, arguments, degree)
                return _called(classes, name, kind, arguments, degree)
    raise reasons.error()


def _arguments(
    kind: type[nn.Module], classes: Classes, known: Mapping[str, Any], degree: str, fills: bool
) -> dict[str, Any]:
    parameters = {
        name: one
        for name, one in inspect.signature(kind).parameters.items()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    given = {
        name: known[name]
        for name, one in parameters.items()
        if name in known and _takes(one.default, known[name], name in classes.overriding, fills)
    }
    lacking = [name for name, one in parameters.items() if one.default is one.empty and name not in given]
    if lacking:
        raise UndescribedError(f"no rule says what its argument {lacking[0]!r} is")
    defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
    small = shrink(SimpleNamespace(**{**defaults, **given}), degree)
    plain: dict[str, Any] = json.loads(json.dumps({**{k: v for k, v in small.items() if k not in given}, **given}))
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(kind).parameters.values()):
        with torch.device("meta"):
            try:
                made(kind, plain)
            except TypeError as error:  # what it passes on, and another class requires
                plain |= {name: known[name] for name in arguments_lacking(str(error)) if name in known}
            except Exception:  # it is told where the model is made
                return plain
    return plain


def _takes(default: Any, value: Any, overrides: bool, fills: bool) -> bool:
    """Whether a value goes in the place of a parameter's default."""
    if default is inspect.Parameter.empty:
        return True
    if default is None:
        return overrides or fills
    return overrides and isinstance(value, list) == isinstance(default, list | tuple)


def _refuse_large(kind: type[nn.Module], arguments: Mapping[str, Any], degree: str) -> None:
    try:
        with torch.device("meta"):
            model = made(kind, arguments)
    except Exception:
        if degree not in _SURELY_SMALL:
            raise
        return
    refuse_large(model)


def _called(
    classes: Classes, name: str, kind: type[nn.Module], arguments: Mapping[str, Any], degree: str
) -> dict[str, Any]:
    torch.manual_seed(0)
    model = build(classes.module, name, arguments)
    parameters = dict(list(inspect.signature(kind.forward).parameters.items())[1:])
    bound = inspect.signature(kind).bind_partial(**arguments)
    bound.apply_defaults()
    whole = {**bound.arguments, **_config(model)}

    def options(parameter: str) -> Sequence[Option]:
        return classes.options(model, whole, parameter)

    lacking = signatures.unknown(parameters, options)
    if lacking:
        raise UndescribedError(f"no rule says what forward's {lacking[0]!r} is")

    def guesses(also: Sequence[str]) -> Iterator[Attempt]:
        return signatures.attempts(parameters, options, classes.wanted, classes.sizes, also)

    def made_for(attempt: Attempt) -> tuple[nn.Module, Mapping[str, Any]]:
        extra = {"fixed": dict(attempt.fixed), "constants": dict(attempt.constants)}
        extra = {key: value for key, value in extra.items() if value}
        torch.manual_seed(0)
        return build(classes.module, name, arguments, **extra) if extra else model, extra

    found = first_taken(made_for, guesses, parameters)
    return {
        "_target_": TARGET,
        "module": classes.module,
        "name": name,
        "arguments": dict(arguments),
        **found.extra,
        "requires": [classes.library],
        "tags": [classes.library, degree],
        **written(found),
    }


def _config(model: nn.Module) -> dict[str, Any]:
    """What a model keeps of its configuration, where it keeps one as a mapping."""
    with contextlib.suppress(Exception):  # whatever an attribute of this name is
        return dict(model.config)  # type: ignore[arg-type]
    return {}


def import_first(classes: Classes) -> None:
    """Imports what all models of a collection need; where that cannot be, each description says so."""
    torch.set_num_threads(1)
    with contextlib.suppress(UnimportableError):
        imported(classes.library)
        imported(classes.module)
