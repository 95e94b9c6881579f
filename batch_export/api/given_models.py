"""`sweep(models={"mine": module_or_factory}, inputs=..., axes=...)`: models of the caller's own process as configs.

Modules, programs, functions, and words arrive; contents of configs leave, with what is to be told. Functions that other
processes can import are sent by name, everything else as a program and its weights, below the outputs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batch_export.errors import BatchExportError, UsageError
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.spec import InputSpec
from batch_export.stages.code_state import code_state
from batch_export.stages.probe_request import Probed, ProbeRequest
from batch_export.sweeps.described import described
from batch_export.sweeps.model_words import inputs_of, request_of
from batch_export.sweeps.model_yaml import config_of, require_name

_TIMEOUT_S = 300.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Given:
    """Models as configs.

    Attributes:
        configs: content by name.
        builders: text of a module with a builder by name, where a config needs one.
        notes: sentences to tell.
        has_axes: whether any of them has a free axis.
    """

    configs: dict[str, dict[str, Any]]
    builders: dict[str, str]
    notes: tuple[str, ...]
    has_axes: bool


def configs_of(models: Mapping[str, Any], inputs: Any, axes: Mapping[str, Any] | None, outputs: Path) -> Given:
    """Describes each model.

    Args:
        models: by name: a `torch.nn.Module`, an exported program, a function or class that returns a module, or words
            as on the command line (`"package.module:function"`, a file, a folder).
        inputs: of all models, or by name of the model: a tensor, a tuple of tensors, tensors by name, or words such as
            `"x=float32[batch,8]"`. Only dtypes, shapes and ranges are taken.
        axes: of all models, or by name of the model: `{"x": {0: "batch"}}`; None: those are free that run at other
            sizes.
        outputs: where programs go.

    Raises:
        UsageError: a model cannot be sent, or does not run; one sentence.
    """
    if not isinstance(models, Mapping):
        raise UsageError(f"sweep: models is a {type(models).__name__}. Next step: name them, models={{'mine': module}}")
    configs: dict[str, dict[str, Any]] = {}
    builders: dict[str, str] = {}
    notes: list[str] = []
    for name, model in models.items():
        require_name(name)
        found = _described(name, model, _own(inputs, name, models), _axes(name, _own(axes, name, models)), outputs)
        configs[name] = config_of(found)
        builders[name] = found.builder
        notes += [f"{name}: {note}" for note in found.notes]
    return Given(configs, builders, tuple(notes), any("axes" in config for config in configs.values()))


def _own(given: Any, name: str, models: Mapping[str, Any]) -> Any:
    """What is meant for one model: the entry of its name where the keys are names of models."""
    return given.get(name) if isinstance(given, Mapping) and given and set(given) <= set(models) else given


def _axes(name: str, given: Any) -> Mapping[str, Mapping[int, str]]:
    """The axes of one model; empty where none are given."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        raise UsageError(
            f"model {name!r}: axes are names by dimension by input, and these are {given!r}. "
            "Next step: axes={'x': {0: 'batch'}}"
        )
    return given


def _described(name: str, model: Any, inputs: Any, axes: Mapping[str, Mapping[int, str]], outputs: Path) -> Probed:
    words = [inputs] if isinstance(inputs, str) else list(inputs) if _is_words(inputs) else []
    if words and axes:
        raise UsageError(f"model {name!r}: axes go with tensors; words name their own, as in 'x=float32[batch,8]'")
    if isinstance(model, str):
        request = request_of(name, model, words, ())
        return described(_with(request, None, inputs, axes, words), _TIMEOUT_S)[1]
    target = _importable(model)
    if target:
        request = _with(ProbeRequest(name, target, compares=True), None, inputs, axes, words)
        found = described(request, _TIMEOUT_S)[1]
        _require_same(name, target, found)
        return found
    if "torch" not in sys.modules and not callable(model):
        raise _no_model(name, model)
    from batch_export.stages import sent_module  # lazy: torch, for those who have it already

    if not sent_module.is_module(model) and not sent_module.is_program(model) and callable(model):
        model = _called(name, model)
    if sent_module.is_program(model):
        path = sent_module.sent_program(name, model, outputs / files.TRIED)
        return described(_with(ProbeRequest(name, path=path), None, inputs, axes, words), _TIMEOUT_S)[1]
    if not sent_module.is_module(model):
        raise _no_model(name, model)
    request = _with(ProbeRequest(name), model, inputs, axes, words)
    if not request.inputs:
        raise UsageError(f"model {name!r} is a module, and needs inputs: sweep(models=..., inputs=(tensor,))")
    return sent_module.sent(model, request, outputs / files.TRIED)


def _require_same(name: str, target: str, found: Probed) -> None:
    """Refuses a function that is another one here than where its file is imported anew: that one would be tested."""
    from batch_export.api.changed_here import changed_here  # lazy: most models are no functions

    changed = changed_here(code_state(target), found.code)
    if changed:
        more = f" and {counted(len(changed) - _SHOWN, 'other')}" if len(changed) > _SHOWN else ""
        verb = "differs" if len(changed) == 1 else "differ"
        raise UsageError(
            f"model {name!r}: {', '.join(changed[:_SHOWN])}{more} {verb} between this process and the source "
            f"from which the processes of a sweep import {target}. Next step: write it there and import it anew, or "
            f"give what the function returns here: models={{{name!r}: {target.rpartition('.')[2]}()}}"
        )


def _no_model(name: str, model: Any) -> UsageError:
    return UsageError(
        f"model {name!r} is a {type(model).__name__}. Next step: give a torch.nn.Module, an exported program, "
        "a function that returns a module, or 'package.module:function'"
    )


def _is_words(inputs: Any) -> bool:
    return isinstance(inputs, Sequence) and bool(inputs) and all(isinstance(one, str) for one in inputs)


def _with(
    request: ProbeRequest, module: Any, inputs: Any, axes: Mapping[str, Any], words: Sequence[str]
) -> ProbeRequest:
    """The question with the inputs in it."""
    leaves: tuple[InputSpec, ...]
    unsized: tuple[str, ...] = ()
    if words:
        read = inputs_of(words)
        leaves, sizes, unsized = read.inputs, read.sizes, read.unsized
    elif inputs is None:
        if axes:
            raise UsageError(f"model {request.name!r}: axes name dimensions of inputs, and there are no inputs")
        return request
    else:
        from batch_export.stages import sent_module  # lazy: whoever has tensors has torch
        from batch_export.stages.probe.examples import accepted  # lazy: as above

        try:
            leaves, sizes = sent_module.described_inputs(None if module is None else accepted(module), inputs, axes)
        except BatchExportError as error:
            raise UsageError(f"model {request.name!r}: {error}") from error
    return replace(request, inputs=leaves, sizes=dict(sizes), unsized=unsized)


def _importable(model: Any) -> str:
    """The dotted name by which another process finds the same function or class; empty where there is none."""
    module, name = getattr(model, "__module__", None), getattr(model, "__qualname__", "")
    if not callable(model) or not isinstance(module, str) or not name.isidentifier() or module == "__main__":
        return ""
    try:
        found = getattr(importlib.import_module(module), name, None)  # lazy: the caller's own module
    except ImportError:
        return ""
    return f"{module}.{name}" if found is model else ""


def _called(name: str, factory: Callable[[], Any]) -> Any:
    try:
        return factory()
    except Exception as error:
        raise UsageError(f"model {name!r}: the function raised {type(error).__name__}: {error}") from error
