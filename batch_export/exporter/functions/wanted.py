"""Which calls of modules become functions: what `modules_as_functions` asks for, as names of classes.

Arrives: the parameter as a caller or a config gives it, and the captured program. Leaves: names of classes, or an
error that says which class is not there. Nothing is made here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TypeAlias

import torch

from batch_export.errors import OnnxExporterError
from batch_export.exporter.functions import calls

ModulesAsFunctions: TypeAlias = "bool | Iterable[type[torch.nn.Module] | str] | None"
"""All modules (True), none (False, None), or those of some classes: each the class itself, or its dotted name."""

_SHOWN = 10


def asked_for(modules: ModulesAsFunctions) -> frozenset[str] | None:
    """The classes asked for by name; None for all of them.

    Raises:
        OnnxExporterError: for what is no class of modules, and for a name that cannot be imported.
    """
    if modules is None or isinstance(modules, bool):
        return None if modules else frozenset()
    if isinstance(modules, str) or not isinstance(modules, Iterable):
        modules = [modules]
    return frozenset(_name(one) for one in modules)


def present(asked: frozenset[str] | None, program: torch.export.ExportedProgram) -> frozenset[str]:
    """The classes among those asked for whose calls a captured program has.

    Raises:
        OnnxExporterError: naming the classes that it has no calls of, and those that it has.
    """
    known = calls.kinds(program)
    if asked is None:
        return frozenset(known)
    if missing := sorted(asked - known):
        listed = sorted(known)
        shown = ", ".join(listed[:_SHOWN]) + (f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")
        raise OnnxExporterError(
            f"modules_as_functions names {', '.join(missing)}, and no call of such a module left operators in the "
            "captured program",
            next_step=f"name classes that it has calls of: {shown}" if known else "leave it out: no module is called",
        )
    return asked


def _name(one: object) -> str:
    kind = _imported(one) if isinstance(one, str) else one
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise OnnxExporterError(
            f"modules_as_functions holds {one!r}, which is no class of modules",
            next_step="give True, or classes of torch.nn.Module, themselves or by their dotted names",
        )
    return f"{kind.__module__}.{kind.__qualname__}"


def _imported(dotted: str) -> object:
    module, _, name = dotted.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OnnxExporterError(
            f"modules_as_functions names {dotted}, which cannot be imported: {error}",
            next_step="name a class as package.module.Class",
        ) from error
    return found
