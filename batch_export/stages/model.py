"""From a model's spec to the live module, its inputs and the dynamic shapes. Runs in child processes only.

A `ModelSpec` arrives; a seeded `torch.nn.Module`, trees of tensors, or torch's form of dynamic shapes leave. Nothing is
cached and nothing is downloaded; the global generators are seeded before the builder runs and never read for inputs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

from batch_export import saved_programs
from batch_export.axes import AUTO, STATIC, dimension
from batch_export.calling import caches, exported_inputs
from batch_export.calling.axis_words import AxisExpression
from batch_export.collections.small_models.importing import declare_operators
from batch_export.errors import BatchExportError, CaptureError, LibraryMissingError, ModelError
from batch_export.sources.places import resolve_target
from batch_export.spec import InputSpec, ModelSpec
from batch_export.stages import for_config, nested_arguments
from batch_export.stages.builder_arguments import BY_KEYWORD, fitting_arguments
from batch_export.stages.cache_inputs import class_named, take_caches
from batch_export.stages.input_values import drawn
from batch_export.words import class_and_line, did_you_mean


def build(spec: ModelSpec) -> torch.nn.Module:
    """Builds the module from its spec, with the generators of torch, NumPy and Python seeded by the spec's seed.

    The module is in eval mode without gradients, unless the builder set `module.keep_training_mode = True`. torch's
    fast path for attention and transformer encoders is switched off in this process: it is another computation than the
    one that capture sees, and the reference has to be the same.

    Raises:
        LibraryMissingError: a library in `requires` is not installed.
        ModelError: the builder cannot be imported or called, returns neither a module nor an exported program, or
            forward does not take the inputs of the spec.
    """
    module = prepared(spec, made_by(spec, found_builder(spec)))
    _fitting_inputs(spec, module)
    take_caches(module, spec.caches, lambda dotted: class_named(spec.name, dotted, _found(spec, dotted)))
    _name_open_keywords(spec, module)
    return module


def found_builder(spec: ModelSpec) -> Any:
    """What the spec's target names; it can be called.

    Raises:
        LibraryMissingError: a library in `requires` is not installed.
        ModelError: there is nothing of that name.
    """
    for library in spec.requires:
        if not _installed(library):
            raise LibraryMissingError(library, f"model {spec.name!r}")
    if spec.requires:
        declare_operators()  # of a torchvision that does not load: transformers does not import without them
    return _found(spec, spec.target)


def made_by(spec: ModelSpec, builder: Any) -> Any:
    """What the builder returns for the spec's arguments, with the generators seeded.

    Raises:
        ModelError: the arguments do not fit, or it raised.
    """
    arguments = fitting_arguments(spec, builder)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(spec.seed)
    random.seed(spec.seed)
    numpy.random.seed(spec.seed % 2**32)
    try:
        made = nested_arguments.made(spec.name, arguments, functools.partial(_found, spec))
        return _as_module(for_config.called(builder, **made))
    except (BatchExportError, MemoryError):
        raise
    except Exception as error:
        raise ModelError(f"model {spec.name!r}: its builder {spec.target} raised {class_and_line(error)}") from error


def prepared(spec: ModelSpec, module: Any) -> torch.nn.Module:
    """What a builder made, as sweeps run it: in eval mode and without gradients.

    Raises:
        ModelError: it is no module.
    """
    caches.register()  # for every exporter and runtime that flattens what the module takes and gives
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model {spec.name!r}: its builder {spec.target} returned {_described(module)}; "
            "it must return a torch.nn.Module, a torch.export.ExportedProgram, or the path of a .pt2 file"
        )
    if not getattr(module, "keep_training_mode", False):
        with contextlib.suppress(NotImplementedError):  # an exported program's module has the mode of its export
            module.eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
    return module


def _as_module(made: Any) -> Any:
    """What the builder returned; an exported program, given or in a file, as a module that remembers it."""
    if isinstance(made, (str, os.PathLike)) and os.fspath(made).endswith(".pt2"):
        try:
            made = saved_programs.loaded(made)
        except CaptureError as error:
            raise ModelError(str(error)) from error
    if not isinstance(made, torch.export.ExportedProgram):
        return made
    module = exported_inputs.as_module(made)
    object.__setattr__(module, _PROGRAM, made)
    return module


_PROGRAM = "_batch_export_program"


def exported_program(module: torch.nn.Module) -> torch.export.ExportedProgram | None:
    """The exported program that the builder gave in place of a module, if it did."""
    return vars(module).get(_PROGRAM)


def example_inputs(spec: ModelSpec, sizes: Mapping[str, int], variant: str = "") -> dict[str, Any]:
    """Returns the keyword arguments of forward with every axis at the given size: the same values for the same sizes.

    Each leaf has a generator of its own, seeded by the model's seed, the sizes of the leaf's axes and its place, so
    values depend neither on torch's global state nor on the other leaves. A variant (see `axes.VARIANTS`) has other
    values of the same shapes and dtypes.
    """

    return _tree(spec, lambda leaf: drawn(spec, leaf, sizes, variant) if leaf.dtype else leaf.constant)


def dynamic_shapes(spec: ModelSpec, setting: str) -> dict[str, Any] | None:
    """Returns the tree of the inputs with `{dimension: axis name}` at the leaves, or None for the static setting.

    A sum is named as `axes.dimension` writes it (`past+seq`); under `auto` the values are `Dim.AUTO`. A constant's leaf
    is None. The keys are parameters of the forward of the module that `build` returned.
    """
    if setting == STATIC:
        return None
    return _tree(spec, lambda leaf: _dimensions(spec, leaf, setting) if leaf.dtype else None)


def flat_tensors(kwargs: Any) -> list[torch.Tensor]:
    """Returns the tensors of an input tree in order; they match `axes.input_names`."""
    return list(_tensors(kwargs))


def _installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def _found(spec: ModelSpec, target: str) -> Any:
    """What a dotted name of the config stands for; it can be called."""
    module_name, attribute = resolve_target(target)
    try:
        module = for_config.imported(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        owner = _class_in_module(module_name)
        if owner is not None:
            return _member(spec, *owner, attribute)
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ModelError(
                f"model {spec.name!r}: there is no module {missing!r} for its builder {target}; "
                "the current folder, PYTHONPATH and the installed packages were searched"
            ) from error
        raise ModelError(
            f"model {spec.name!r}: {module_name} imports {missing!r}, which is not installed; install it, "
            "and name it under 'requires' if cells may be skipped without it"
        ) from error
    except Exception as error:
        raise ModelError(f"model {spec.name!r}: importing {module_name} raised {class_and_line(error)}") from error
    builder = getattr(module, attribute, None)
    if builder is None:
        names = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
        raise ModelError(
            f"model {spec.name!r}: module {module_name!r} has no {attribute!r}{did_you_mean(attribute, names)}"
        )
    if not callable(builder):
        raise ModelError(f"model {spec.name!r}: {target} is {_described(builder)}, which cannot be called")
    return builder


def _class_in_module(dotted: str) -> tuple[Any, str] | None:
    """`package.module.Class` as the class and its name; None where there is no such thing."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name:
        return None
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ModuleNotFoundError:
        outer = _class_in_module(module_name)
        found = getattr(outer[0], name, None) if outer is not None else None
    return None if found is None or inspect.ismodule(found) else (found, dotted)


def _member(spec: ModelSpec, owner: Any, name: str, attribute: str) -> Any:
    """A callable of a class, such as `from_pretrained`."""
    builder = getattr(owner, attribute, None)
    if not callable(builder):
        names = [other for other in dir(owner) if not other.startswith("_") and callable(getattr(owner, other, None))]
        raise ModelError(f"model {spec.name!r}: {name} has no callable {attribute!r}{did_you_mean(attribute, names)}")
    return builder


def _fitting_inputs(spec: ModelSpec, module: torch.nn.Module) -> None:
    """Checks that forward takes exactly the inputs of the spec, listed in forward's order, which is the file's too."""
    if isinstance(module, torch.jit.ScriptModule):
        return  # Its forward has a signature of its own kind.
    parameters = inspect.signature(module.forward).parameters
    given = list(dict.fromkeys(str(leaf.path[0]) for leaf in spec.inputs))
    where = f"model {spec.name!r}: forward of {type(module).__name__}"
    named = [name for name, parameter in parameters.items() if parameter.kind in BY_KEYWORD]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in given:
            if name not in named:
                hint = did_you_mean(name, named) or f" (it takes: {', '.join(named) or 'nothing'})"
                raise ModelError(f"{where} has no parameter {name!r}{hint}")
    for name in named:
        if parameters[name].default is inspect.Parameter.empty and name not in given:
            raise ModelError(f"{where} needs {name!r}, which 'inputs' does not list")
    order = sorted(given, key=lambda name: named.index(name) if name in named else len(named))
    if order != given:
        raise ModelError(f"{where} takes its inputs in another order than 'inputs' lists them; list {', '.join(order)}")


def _name_open_keywords(spec: ModelSpec, module: torch.nn.Module) -> None:
    """Gives a forward that takes `**kwargs` a signature with the spec's inputs in their place.

    torch.export (2.13) accepts no dynamic shapes for what `**kwargs` catches, under whichever name.
    The module becomes an instance of a subclass of the same name, so copies of it stay independent of each other.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return
    original = type(module)
    signature = inspect.signature(original.forward)
    caught = [one for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD]
    names = dict.fromkeys(str(leaf.path[0]) for leaf in spec.inputs)
    extra = [name for name in names if name not in signature.parameters]
    if not caught or not extra:
        return
    kept = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return original.forward(self, *args, **kwargs)

    forward.__signature__ = signature.replace(parameters=[*kept, *named])  # type: ignore[attr-defined]
    body = {"forward": forward, "__module__": original.__module__, "__qualname__": original.__qualname__}
    module.__class__ = type(original.__name__, (original,), body)


def _tree(spec: ModelSpec, value_of: Any) -> dict[str, Any]:
    """Builds the tree of keyword arguments, its leaves in the spec's order; list indices arrive in rising order."""
    root: dict[str, Any] = {}
    for leaf in spec.inputs:
        node: Any = root
        for step, following in zip(leaf.path, leaf.path[1:], strict=False):
            node = _child(node, step, [] if isinstance(following, int) else {})
        _child(node, leaf.path[-1], value_of(leaf))
    return root


def _child(node: Any, step: str | int, new: Any) -> Any:
    if isinstance(step, int):
        if step == len(node):
            node.append(new)
    else:
        node.setdefault(step, new)
    return node[step]


def _dimensions(spec: ModelSpec, leaf: InputSpec, setting: str) -> dict[int, Any]:
    named = {index: dimension(spec, entry, setting) for index, entry in enumerate(leaf.shape)}
    return {
        index: torch.export.Dim.AUTO if setting == AUTO else AxisExpression(name)
        for index, name in named.items()
        if isinstance(name, str)
    }


def _tensors(node: Any) -> Iterator[torch.Tensor]:
    if isinstance(node, torch.Tensor):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _tensors(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _tensors(value)


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
