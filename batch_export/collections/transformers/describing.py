"""A type and a class of transformers as a model's configuration: a small config, inputs that eager takes, free axes.

Runs in a child, which imports torch and transformers. A name arrives, the mapping that `conf/model/*.yaml` would hold
leaves, or a `UndescribedError` whose one sentence says why there is none.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from batch_export.collections.transformers import hints
from batch_export.collections.transformers.building import build, config_of
from batch_export.collections.transformers.configs import nested
from batch_export.collections.transformers.errors_read import arguments_missed, settings_said
from batch_export.collections.transformers.inputs import Guesser
from batch_export.collections.transformers.leaves import Attempt, Leaf
from batch_export.collections.transformers.names import split
from batch_export.collections.transformers.repairs import repaired
from batch_export.collections.transformers.shrinking import DEGREES, shrink
from batch_export.words import class_and_line

TARGET = "batch_export.collections.transformers.building.build"
MOST_PARAMETERS = 50_000_000
_ROUNDS = 3
_CHECKS = {"batch": (1, 3), "height": (1.5, 2.0), "width": (2.0, 1.5)}


class UndescribedError(Exception):
    """A class that no small model with inputs was found for."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A module and the guess that it was called with."""

    module: nn.Module
    attempt: Attempt
    arguments: dict[str, Any]


def describe(model_type: str, architecture: str) -> dict[str, Any]:
    """Returns a model's configuration.

    Args:
        model_type: a key of transformers' mappings.
        architecture: the name of a class.

    Raises:
        UndescribedError: no degree of shrinking gives a model that eager runs.
    """
    import transformers  # lazy: this package is imported by what lists names, too

    reasons: dict[str, str] = {}
    model_type = _own_type(transformers, model_type, architecture)
    default = transformers.CONFIG_MAPPING[model_type]
    said: dict[str, bool] = {}
    for degree in DEGREES:
        try:
            arguments = _arguments(default, model_type, degree)
            try:
                _refuse_large(transformers, model_type, architecture, {**arguments, **said})
            except (AssertionError, ValueError) as error:
                said |= settings_said(str(error))
                if not said:
                    raise
                _refuse_large(transformers, model_type, architecture, {**arguments, **said})
            made = _called(transformers, model_type, architecture, {**arguments, **said})
            return _written(model_type, architecture, made, degree)
        except ImportError as error:
            first = " ".join(str(error).split()).partition(". ")[0]
            raise UndescribedError(f"it needs a library that is not installed: {first}") from error
        except Exception as error:
            reasons.setdefault(
                " ".join(str(error).split()) if isinstance(error, UndescribedError) else class_and_line(error), degree
            )
    raise UndescribedError("; ".join(f"{degree}: {reason[:300]}" for reason, degree in reasons.items()))


def _own_type(transformers: Any, model_type: str, architecture: str) -> str:
    """The type of the config that a class is made with: one within that of the type, where it says so itself."""
    own = getattr(getattr(transformers, architecture), "config_class", None)
    mapped = transformers.CONFIG_MAPPING
    if own is None or own is mapped[model_type] or getattr(own, "model_type", "") not in mapped:
        return model_type
    with contextlib.suppress(Exception):  # a class that needs arguments
        if any(type(inner) is own for _, inner in nested(mapped[model_type]())):
            return str(own.model_type)
    return model_type


def _arguments(config_class: Any, model_type: str, degree: str) -> dict[str, Any]:
    given = hints.ARGUMENTS.get(model_type, {})
    try:
        config = config_class()
    except Exception:
        config = config_class(**given)
    arguments = _laid_over(shrink(config, degree), given)
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
    for name, inner in nested(config):
        instead = hints.STAND_INS.get(inner.model_type)
        if instead is not None:
            arguments[name] = dict(instead)
            for switch in ("use_timm_backbone", "use_pretrained_backbone"):
                if hasattr(config, switch):
                    arguments[switch] = False
        elif isinstance(arguments.get(name), dict):
            _stand_in(inner, arguments[name])


def _refuse_large(transformers: Any, model_type: str, architecture: str, arguments: Mapping[str, Any]) -> None:
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config_of(model_type, arguments))
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise UndescribedError(f"it has {count:,} parameters, and at most {MOST_PARAMETERS:,} are built")


def _called(transformers: Any, model_type: str, architecture: str, arguments: dict[str, Any]) -> _Made:
    """The first guess that eager takes."""
    torch.manual_seed(0)
    model = build(architecture, model_type, arguments)
    parameters = dict(inspect.signature(type(model).forward).parameters)
    parameters.pop("self")
    main = getattr(model, "main_input_name", "input_ids")
    guesser = Guesser(model.config, parameters, main if isinstance(main, str) else main[0])
    also: list[str] = []
    repairs: list[Attempt] = []
    first = ""
    for _ in range(_ROUNDS):
        named: list[str] = []
        waiting: list[Attempt] = []
        for attempt in _and(waiting, guesser.attempts(also)):
            try:
                whole = _with_places(model, guesser, attempt)
                extra = {"fixed": dict(attempt.fixed), **whole}
                extra = {key: value for key, value in extra.items() if value}
                torch.manual_seed(0)
                module = build(architecture, model_type, arguments, **extra) if extra else model
                _refuse_nothing(_run(module, attempt, attempt.sizes))
                return _Made(module, attempt, {"config": arguments, **extra})
            except Exception as error:
                words = class_and_line(error)
                first = first or words
                named += [name for name in arguments_missed(error, parameters) if name not in attempt.leaves]
                other = None if len(repairs) == _MOST_REPAIRS else repaired(attempt, error)
                if other is not None and other not in repairs:
                    repairs.append(other)
                    waiting.append(other)
        fresh = [name for name in dict.fromkeys(named) if name not in also and name not in _NEVER]
        if not fresh:
            break
        also += fresh
    raise UndescribedError(f"no inputs were found ({first})")


def _and(waiting: list[Attempt], attempts: Iterator[Attempt]) -> Iterator[Attempt]:
    """Attempts, and after each those that wait by then."""
    for attempt in attempts:
        yield attempt
        while waiting:
            yield waiting.pop(0)


_MOST_REPAIRS = 12

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
    given = {**_tensors(attempt.leaves, attempt.sizes), **{k: torch.tensor(v) for k, v in attempt.fixed.items()}}
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


def _tensors(leaves: Mapping[str, Leaf], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    return {name: _tensor(leaf, sizes, index) for index, (name, leaf) in enumerate(leaves.items())}


def _tensor(leaf: Leaf, sizes: Mapping[str, int], seed: int) -> torch.Tensor:
    shape = [sizes[entry] if isinstance(entry, str) else entry for entry in leaf.shape]
    dtype = getattr(torch, leaf.dtype)
    if leaf.fill is not None:
        return torch.full(shape, leaf.fill, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    if leaf.high is not None:
        return torch.randint(leaf.low or 0, leaf.high, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _run(module: nn.Module, attempt: Attempt, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = module(**_tensors(attempt.leaves, sizes))
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _refuse_nothing(outputs: Sequence[torch.Tensor]) -> None:
    if not outputs:
        raise UndescribedError("it returns no tensor")
    for output in outputs:
        if output.is_floating_point() and output.numel() and not bool(torch.isfinite(output).any()):
            raise UndescribedError("an output has no finite value")


def _written(model_type: str, architecture: str, made: _Made, degree: str) -> dict[str, Any]:
    """The configuration; axes that eager refuses to vary are written as sizes."""
    attempt = made.attempt
    axes = _free(made)
    leaves = {name: _bound(leaf, attempt.sizes, axes) for name, leaf in attempt.leaves.items()}
    return {
        "_target_": TARGET,
        "architecture": architecture,
        "model_type": model_type,
        **made.arguments,
        "requires": ["transformers"],
        "tags": ["transformers", degree],
        "inputs": {name: leaf.config() for name, leaf in leaves.items()},
        "axes": {name: {"example": attempt.sizes[name], "check": list(checks)} for name, checks in axes.items()},
    }


def _free(made: _Made) -> dict[str, tuple[int, ...]]:
    """The axes that eager accepts to vary, alone and together, with the sizes at which they are checked."""
    sizes = made.attempt.sizes
    free: dict[str, tuple[int, ...]] = {}
    for name, size in sizes.items():
        checks = tuple(check for check in _checks(name, size) if _takes(made, {**sizes, name: check}))
        if len(checks) == 2:
            free[name] = checks
    while free and not all(_takes(made, {**sizes, **{n: c[i] for n, c in free.items()}}) for i in range(2)):
        free.popitem()
    return free


def _checks(name: str, size: int) -> tuple[int, ...]:
    if name == "batch":
        return (1, 3)
    if name in ("height", "width"):
        return (size * 3 // 2, size * 2) if name == "height" else (size * 2, size * 3 // 2)
    return (size + 4, max(2, size - 3)) if size < 100 else (size + size // 4, size * 2)


def _takes(made: _Made, sizes: Mapping[str, int]) -> bool:
    try:
        _refuse_nothing(_run(made.module, made.attempt, sizes))
    except Exception:
        return False
    return True


def _bound(leaf: Leaf, sizes: Mapping[str, int], free: Mapping[str, Any]) -> Leaf:
    shape = tuple(sizes[entry] if isinstance(entry, str) and entry not in free else entry for entry in leaf.shape)
    return replace(leaf, shape=shape)


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its name in the collection; raises as `describe` does."""
    return describe(*split(name))


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    torch.set_num_threads(1)
    for name in ("bert.BertModel", "llama.LlamaModel", "vit.ViTModel"):
        with contextlib.suppress(UndescribedError):
            describe_named(name)
