"""The builder of timm's models: a registered name and changes of its class' arguments in, a seeded module out.

timm's functions compute the arguments of a class from a variant's table; changes are laid over those on their way into
the class, at whatever depth they are (fields of dataclasses, entries of mappings and of sequences). Nothing is
downloaded, and no model is known by its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from batch_export.collections.small_models.importing import imported
from batch_export.collections.small_models.spreading import spread

_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_MAKER = "build_model_with_cfg"


def build(model: str, changes: Mapping[str, Any] | None = None) -> nn.Module:
    """Builds a registered model without weights of its own.

    Args:
        model: its registered name, such as `resnet50`.
        changes: arguments of its class that differ from the variant's, see `laid_over`.

    Returns:
        The module in eval mode.

    Raises:
        UnimportableError: timm cannot be imported here.
    """
    module = made(model, lambda arguments: changes or {}).eval()
    spread(module)
    return module


def made(model: str, changes_of: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> nn.Module:
    """The module of a registered model.

    Args:
        model: its registered name.
        changes_of: is given the arguments of its class and returns what of them is changed.
    """
    timm = imported("timm")
    with _changed(changes_of):
        module: nn.Module = timm.create_model(model, pretrained=False)
    return module


@contextlib.contextmanager
def _changed(changes_of: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Iterator[None]:
    """Has timm's modules make classes with changed arguments."""
    original = imported("timm.models._builder").build_model_with_cfg

    def with_changes(model_cls: Callable[..., nn.Module], *rest: Any, **settings: Any) -> Any:
        def changed(*given: Any, **arguments: Any) -> nn.Module:
            signature = inspect.signature(model_cls)
            bound = signature.bind(*given, **arguments)
            bound.apply_defaults()
            named = {k: v for k, v in bound.arguments.items() if signature.parameters[k].kind not in _ANY}
            whole = {**named, **arguments}
            changes = changes_of(whole)
            kept = {name: value for name, value in whole.items() if name in arguments or name in changes}
            return model_cls(*given, **{name: laid_over(value, changes.get(name)) for name, value in kept.items()})

        return original(changed, *rest, **settings)

    users = [module for name, module in sys.modules.items() if name.startswith("timm.models")]
    users = [module for module in users if getattr(module, _MAKER, None) is original]
    for module in users:
        setattr(module, _MAKER, with_changes)
    try:
        yield
    finally:
        for module in users:
            setattr(module, _MAKER, original)


def laid_over(value: Any, change: Any) -> Any:
    """Returns a value with changes.

    A mapping changes entries of a mapping and fields of a dataclass. A sequence changes the entries of a sequence, and
    leaves out those that it is too short for. None leaves a value as it is, and anything else takes its place.
    """
    if change is None:
        return value
    if isinstance(change, Mapping):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {name: laid_over(getattr(value, name), entry) for name, entry in change.items()}
            return dataclasses.replace(value, **fields)
        if isinstance(value, Mapping):
            changed = {name: laid_over(value[name], entry) for name, entry in change.items()}
            return type(value)({**value, **changed})  # type: ignore[call-arg]
        return dict(change)
    if isinstance(change, list | tuple) and isinstance(value, Sequence) and not isinstance(value, str):
        return type(value)(laid_over(one, other) for one, other in zip(value, change, strict=False))  # type: ignore[call-arg]
    return change
