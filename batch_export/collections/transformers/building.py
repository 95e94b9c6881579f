"""The builder of the models that the transformers collection describes: a config's arguments in, a seeded module out.

Parameters that initialisation left constant (all zeros, all ones) are spread, so that a file which forgets one is seen;
running statistics too. Nothing is downloaded, and no class is known by its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from batch_export.collections.small_models.completed import Completed
from batch_export.collections.small_models.importing import imported
from batch_export.collections.small_models.spreading import spread


def build(
    architecture: str,
    model_type: str,
    config: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    prefix: list[int] | None = None,
    along: Mapping[str, int] | None = None,
) -> nn.Module:
    """Builds a model of transformers from the arguments of its config.

    Args:
        architecture: name of the class, such as `BertForMaskedLM`.
        model_type: the key of transformers' mappings, such as `bert`.
        config: arguments of the config class; nested configs are mappings.
        fixed: see `Completed`.
        constants: see `Completed`.
        prefix: see `Completed`.
        along: see `Completed`.

    Returns:
        The module in eval mode.
    """
    transformers = imported("transformers")
    transformers.logging.set_verbosity_error()
    made = config_of(model_type, config or {})
    model: nn.Module = class_of(architecture, made)(made).eval()
    spread(model)
    if fixed or constants or prefix:
        return Completed(model, fixed or {}, constants or {}, prefix or [], along or {}).eval()
    return model


def class_of(architecture: str, config: Any) -> type[nn.Module]:
    """Returns a class by its name: of the package, or of the module with the models of a config.

    Raises:
        AttributeError: neither has it.
    """
    transformers = imported("transformers")
    found: type[nn.Module] | None = getattr(transformers, architecture, None)
    if found is None:  # in transformers' mappings and not in its own list of names
        kind = config if isinstance(config, type) else type(config)
        module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
        found = getattr(module, architecture)
    return found


def config_of(model_type: str, arguments: Mapping[str, Any]) -> Any:
    """The config of a type with these arguments; caches are off, in the configs within it too."""
    transformers = imported("transformers")
    made = transformers.CONFIG_MAPPING[model_type](**_as_written(transformers, model_type, arguments))
    todo = [made]
    while todo:
        config = todo.pop()
        if hasattr(config, "use_cache"):
            config.use_cache = False
        todo += [value for name, value in vars(config).items() if name[:1] != "_" and hasattr(value, "model_type")]
    return made


def _as_written(transformers: Any, model_type: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples where the class has tuples, which JSON does not tell apart; a config of another type as one."""
    try:
        default = vars(transformers.CONFIG_MAPPING[model_type]())
    except Exception:  # a class that needs arguments
        return dict(arguments)
    written = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, list) and isinstance(default.get(name), tuple):
            written[name] = _tuples(value)
        elif isinstance(value, Mapping) and value.get("model_type") in transformers.CONFIG_MAPPING:
            written[name] = _as_written(transformers, value["model_type"], value)
            there = getattr(default.get(name), "model_type", value["model_type"])
            if there != value["model_type"]:  # a class may take mappings for those of its own kind
                written[name] = transformers.CONFIG_MAPPING[value["model_type"]](**written[name])
    return written


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
