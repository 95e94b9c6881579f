"""A type and a class of transformers as a model's configuration: a small config, inputs that eager takes, free axes.

Runs in a child, which imports torch and transformers. A name arrives, the mapping that `conf/model/*.yaml` would hold
leaves, or a `UndescribedError` whose one sentence says why there is none.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from batch_export.collections.small_models.calling import (
    Made,
    UndescribedError,
    first_taken,
    refuse_large,
    tensors,
    written,
)
from batch_export.collections.small_models.config_tree import changed, overlaid
from batch_export.collections.small_models.configs import nested, value_of
from batch_export.collections.small_models.errors_read import settings_said
from batch_export.collections.small_models.importing import UnimportableError, imported
from batch_export.collections.small_models.leaves import Attempt
from batch_export.collections.small_models.mending import Mender
from batch_export.collections.small_models.reasons import Reasons
from batch_export.collections.small_models.shrinking import DEGREES, shrink
from batch_export.collections.transformers import hints
from batch_export.collections.transformers.building import build, class_of, config_of
from batch_export.collections.transformers.inputs import Guesser
from batch_export.collections.transformers.names import split

TARGET = "batch_export.collections.transformers.building.build"


def describe(model_type: str, architecture: str) -> dict[str, Any]:
    """Returns a model's configuration.

    Args:
        model_type: a key of transformers' mappings.
        architecture: the name of a class.

    Raises:
        UndescribedError: no degree of shrinking gives a model that eager runs.
    """
    try:
        transformers = imported("transformers")
    except UnimportableError as error:
        raise UndescribedError(str(error)) from error
    reasons = Reasons()
    with reasons.noting(DEGREES[0]):
        model_type = _own_type(transformers, model_type, architecture)
    default = transformers.CONFIG_MAPPING[model_type]
    said: dict[str, bool] = {}
    for degree in _SMALL:
        with reasons.noting(degree):
            return _made(default, model_type, architecture, degree, said)
    _refuse_objects(class_of(architecture, default))
    for degree, most in _MENDED.items():
        found = _mended(model_type, architecture, degree, most)
        if found is not None:
            return _written(model_type, architecture, *found, degree)
    for degree in DEGREES[len(_SMALL) :]:
        with reasons.noting(degree):
            return _made(default, model_type, architecture, degree, said)
    raise reasons.error()


def _made(config_class: Any, model_type: str, architecture: str, degree: str, said: dict[str, bool]) -> dict[str, Any]:
    """The configuration at one degree of shrinking; `said` gets the settings that the class says it needs."""
    arguments = _arguments(config_class, model_type, degree)
    try:
        _refuse_large(model_type, architecture, {**arguments, **said})
    except (AssertionError, ValueError) as error:
        said |= settings_said(str(error))
        if not said:
            raise
        _refuse_large(model_type, architecture, {**arguments, **said})
    arguments |= said
    made = _called(model_type, architecture, arguments)
    return _written(model_type, architecture, arguments, made, degree)


_SMALL = DEGREES[:3]
"""Degrees that are tried as they are before a config is mended; the others may take minutes."""
_MENDED = {"narrow": 16, "headed": 4, "plain": 4}
"""Degrees at which a config is changed by what its model says, and how many models are built for that."""


def _mended(model_type: str, architecture: str, degree: str, most: int) -> tuple[dict[str, Any], Made] | None:
    """Arguments changed by what the model's errors say, with the guess that eager takes; None where none is found.

    What ends in errors that were met is given up; else what these errors say is tried next.
    """
    default = _config_class(model_type)
    waiting: list[dict[str, Any]] = []
    for of_each in (1, 2):
        with contextlib.suppress(Exception):
            waiting.append(_arguments(default, model_type, degree, of_each))
    tried: list[dict[str, Any]] = []
    met: set[frozenset[str]] = set()
    while waiting and len(tried) < most:
        arguments = waiting.pop(0)
        if arguments in tried:
            continue
        tried.append(arguments)
        try:
            _refuse_large(model_type, architecture, arguments)
            return arguments, _called(model_type, architecture, arguments, persistent=True)
        except Exception as error:
            causes = error.causes if isinstance(error, UndescribedError) and error.causes else (error,)
            said = frozenset(map(str, causes))
            if said not in met:
                met.add(said)
                waiting = [*_changes(model_type, arguments, causes), *waiting]
    return None


def _changes(model_type: str, arguments: Mapping[str, Any], causes: Sequence[Exception]) -> list[dict[str, Any]]:
    whole = _whole(_config_class(model_type), model_type)
    try:
        config = config_of(model_type, arguments)
    except Exception:  # what the class refuses is what is to be changed
        config = overlaid(whole, arguments)
    mender = Mender(config, whole)
    found = [changes for cause in causes for changes in mender.mends(cause)]
    return [changed(arguments, changes) for changes in [*found, *mender.last()]]


def _refuse_objects(kind: type[nn.Module]) -> None:
    """Raises an `UndescribedError` for a class that has no forward, or whose forward has to be given an object."""
    if kind.forward is nn.Module.forward:
        raise UndescribedError("its class has no forward: it is called by methods of its own")
    for name, one in inspect.signature(kind.forward).parameters.items():
        annotation = one.annotation
        own = isinstance(annotation, type) and annotation.__module__.partition(".")[0] == "transformers"
        if own and one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD:
            raise UndescribedError(
                f"its forward has to be given {name!r}, a {annotation.__name__}, and not tensors alone"
            )


def _own_type(transformers: Any, model_type: str, architecture: str) -> str:
    """The type of the config that a class is made with: one within that of the type, where it says so itself."""
    mapped = transformers.CONFIG_MAPPING
    own = getattr(class_of(architecture, mapped[model_type]), "config_class", None)
    if own is None or own is mapped[model_type] or getattr(own, "model_type", "") not in mapped:
        return model_type
    with contextlib.suppress(Exception):  # a class that needs arguments
        if any(type(inner) is own for _, inner in nested(mapped[model_type]())):
            return str(own.model_type)
    return model_type


def _config_class(model_type: str) -> Any:
    return imported("transformers").CONFIG_MAPPING[model_type]


def _whole(config_class: Any, model_type: str) -> Any:
    try:
        return config_class()
    except Exception:
        return config_class(**hints.ARGUMENTS.get(model_type, {}))


def _arguments(config_class: Any, model_type: str, degree: str, of_each: int = 1) -> dict[str, Any]:
    config = _whole(config_class, model_type)
    arguments = _laid_over(shrink(config, degree, of_each), hints.ARGUMENTS.get(model_type, {}))
    _stand_in(config, arguments)
    plain: dict[str, Any] = json.loads(json.dumps(arguments))
    return plain


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings as one, mappings within them too."""
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        both = isinstance(value, Mapping) and isinstance(there, Mapping)
        merged[name] = _laid_over(there, value) if both and there is not None else value
    return merged


def _stand_in(config: Any, arguments: dict[str, Any]) -> None:
    """Puts other configs in the place of those that need a package, but for one with arguments of the package's own."""
    for name, inner in nested(config):
        instead = hints.STAND_INS.get(inner.model_type)
        if instead is not None and not value_of(inner, "model_args"):
            arguments[name] = dict(instead)
            for switch in ("use_timm_backbone", "use_pretrained_backbone"):
                if hasattr(config, switch):
                    arguments[switch] = False
        elif isinstance(arguments.get(name), dict):
            _stand_in(inner, arguments[name])


def _refuse_large(model_type: str, architecture: str, arguments: Mapping[str, Any]) -> None:
    with torch.device("meta"):
        config = config_of(model_type, arguments)
        refuse_large(class_of(architecture, config)(config))


def _called(model_type: str, architecture: str, arguments: dict[str, Any], *, persistent: bool = False) -> Made:
    """The first guess that eager takes; a persistent search reads more of what there is to read."""
    torch.manual_seed(0)
    model = build(architecture, model_type, arguments)
    parameters = dict(inspect.signature(type(model).forward).parameters)
    parameters.pop("self")
    main = getattr(model, "main_input_name", "input_ids")
    doc = (type(model).forward.__doc__ or "") if persistent else None
    guesser = Guesser(model.config, parameters, main if isinstance(main, str) else main[0], doc)

    def made_for(attempt: Attempt) -> tuple[nn.Module, Mapping[str, Any]]:
        whole = _with_places(model, guesser, attempt)
        extra = {
            key: value
            for key, value in {"fixed": dict(attempt.fixed), "constants": dict(attempt.constants), **whole}.items()
            if value
        }
        torch.manual_seed(0)
        return build(architecture, model_type, arguments, **extra) if extra else model, extra

    return first_taken(made_for, guesser.attempts, parameters, _NEVER, persistent=persistent)


_NEVER = ("inputs_embeds", "decoder_inputs_embeds", "labels", "use_cache", "past_key_values", "return_dict", "kwargs")


def _with_places(model: nn.Module, guesser: Guesser, attempt: Attempt) -> dict[str, Any]:
    """Places before the text for what the model makes of an image or a sound."""
    if attempt.prefix:
        return {"prefix": list(attempt.prefix), "along": {"attention_mask": 1} if _is_masked(attempt) else {}}
    if not attempt.modality:
        return {}
    features = getattr(model, f"get_{attempt.modality}_features", None)
    token = guesser.found.token(attempt.modality)
    if features is None or token is None:
        return {}
    given = {**tensors(attempt.leaves, attempt.sizes), **{k: torch.tensor(v) for k, v in attempt.fixed.items()}}
    taken = inspect.signature(features).parameters
    with torch.no_grad():
        found = features(**{name: value for name, value in given.items() if name in taken})
    found = getattr(found, "pooler_output", found)
    parts = list(found) if isinstance(found, list | tuple) else [found]
    wide = model.get_input_embeddings().weight.shape[-1]  # type: ignore[operator]
    rows = attempt.leaves["input_ids"].shape[0]
    batch = attempt.sizes["batch"] if rows == "batch" else 1
    count = sum(part.numel() for part in parts if isinstance(part, torch.Tensor)) // wide // batch
    along = {"attention_mask": 1} if _is_masked(attempt) else {}
    if "position_ids" in attempt.leaves:
        along["position_ids"] = 0
    if "mm_token_type_ids" in guesser.parameters:
        along["mm_token_type_ids"] = 1
    if "token_type_ids" in guesser.parameters:
        along["token_type_ids"] = 1
    return {"prefix": [token] * count, "along": along}


def _is_masked(attempt: Attempt) -> bool:
    return "attention_mask" in attempt.leaves


def _written(
    model_type: str, architecture: str, arguments: Mapping[str, Any], made: Made, degree: str
) -> dict[str, Any]:
    return {
        "_target_": TARGET,
        "architecture": architecture,
        "model_type": model_type,
        "config": arguments,
        **made.extra,
        "requires": ["transformers"],
        "tags": ["transformers", degree],
        **written(made),
    }


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its name in the collection; raises as `describe` does."""
    return describe(*split(name))


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    torch.set_num_threads(1)
    for name in ("bert.BertModel", "llama.LlamaModel", "vit.ViTModel"):
        with contextlib.suppress(UndescribedError):
            describe_named(name)
