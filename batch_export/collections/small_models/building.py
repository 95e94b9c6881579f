"""The builder of models that are a class with arguments: where the class is and its arguments in, a seeded module out.

Nothing is downloaded, and no class is known by its name.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from batch_export.collections.small_models.completed import Completed
from batch_export.collections.small_models.importing import imported
from batch_export.collections.small_models.spreading import spread


def build(
    module: str,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Builds a model of a class.

    Args:
        module: where the class is, such as `diffusers.models`.
        name: of the class.
        arguments: of the class; lists become tuples where the class has one by default.
        fixed: see `completed.Completed`.
        constants: see `completed.Completed`.

    Returns:
        The module in eval mode.

    Raises:
        UnimportableError: the package cannot be imported here.
    """
    kind = class_of(module, name)
    model: nn.Module = made(kind, arguments or {}).eval()
    spread(model)
    if fixed or constants:
        return Completed(model, fixed or {}, constants or {}, [], {}).eval()
    return model


def class_of(module: str, name: str) -> type[nn.Module]:
    """Returns a class of a package; raises as `importing.imported` does."""
    imported(module.partition(".")[0])
    found: type[nn.Module] = getattr(imported(module), name)
    return found


def made(kind: type[nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """A module of a class, with lists as tuples where the class has one by default, which JSON does not tell apart.

    A class that changes its lists in place changes copies: the same arguments are described and built with again.
    """
    defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    return kind(
        **{
            name: tuples(value) if isinstance(defaults.get(name), tuple) else copy.deepcopy(value)
            for name, value in arguments.items()
        }
    )


def tuples(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value
