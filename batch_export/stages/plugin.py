"""Exporting with somebody else's exporter: any callable that writes an ONNX file.

A workbench whose exporter names a callable (`batch_export/plugin.py` says how it is called) arrives; the written file
and the files beside it leave. What the callable raises is a failure under its own class; what it writes is believed by
nobody until the checks are done. The module's buffers, its training modes and torch's settings leave as they came; a
module in which the exporter changed anything else is let go, so that nothing else runs on it.

Facts: `built` (see `built.py`), `opset` (of the file's default domain), `nodes`, `seconds_by_stage`, and where there is
something `changed`: by kind what the exporter changed in the model or in torch (see `lent_module.py`).
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import onnx
import torch

from batch_export import axes
from batch_export.errors import LibraryMissingError, TranslationError, UsageError
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.plugin import Wanted
from batch_export.record import Failure, Stage
from batch_export.spec import ExporterSpec
from batch_export.stages import for_config
from batch_export.stages import model as model_room
from batch_export.stages.exporter_arguments import require_known
from batch_export.stages.failures import formatted, short_line
from batch_export.stages.lent_module import LentModule
from batch_export.stages.models_line import models_line
from batch_export.stages.output import ModelFiles, StageOutput
from batch_export.stages.state import ModuleState
from batch_export.stages.workbench import Workbench
from batch_export.words import error_line, without_colours


def execute(bench: Workbench, opset: int) -> StageOutput:
    """Calls the exporter at the example sizes.

    Raises:
        UsageError: the exporter's `target` cannot be imported, or not be called with what an exporter is given.
        TranslationError: it returned without having written an ONNX file at `path`.
    """
    made = bench.built
    module, kwargs = bench.module, bench.inputs(axes.example_sizes(bench.model))
    state, lent = ModuleState(module), LentModule(module)
    changed: dict[str, list[str]] = {}
    try:
        with settings_kept():
            called = _call(bench, (module, (), kwargs), opset)
    finally:
        changes = lent.changes()
        with contextlib.suppress(AttributeError):  # the submodule that held a buffer is gone
            state.restore()
        lent.put_modes_back()
        after = lent.changes() if changes.of_module else changes
        changed = changes.named()
        bench.returned(replace(changes, is_same=after.is_same))
    if isinstance(called, Failure):
        return StageOutput(facts={"changed": changed} if changed else {}, failure=called)
    path, seconds = called
    model = _written(bench.exporter.name, path)
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    facts = {
        "built": made,
        "opset": versions[0] if versions else 0,
        "nodes": len(model.graph.node),
        "seconds_by_stage": {"export": seconds},
        **({"changed": changed} if changed else {}),
    }
    return StageOutput(facts=facts, model=_files(bench.exporter.name, path))


def _call(bench: Workbench, given: tuple[Any, ...], opset: int) -> tuple[Path, float] | Failure:
    """Calls the exporter; returns where it was to write and the seconds that it took, or what it raised."""
    module = given[0]
    try:
        exporter = resolve(bench.exporter.target)
        path = Path(tempfile.mkdtemp(prefix=f"opset{opset}-", dir=bench.scratch)) / "model.onnx"
        wanted: Wanted = {
            "path": path,
            "opset_version": opset,
            "dynamic_shapes": model_room.dynamic_shapes(bench.model, bench.dynamic),
            "input_names": list(axes.input_names(bench.model)),
            "output_names": list(bench.model.output_names) or None,
        }
        options = {**wanted, **copy.deepcopy(bench.exporter.arguments)}  # of which keys are made
        ours = ("module", "model", "args", "f", "kwargs", "dynamo", "external_data", "verbose", *wanted)
        require_known(bench.exporter.name, exporter, bench.exporter.arguments, ours)
        _require_takes(bench.exporter, exporter, given, options)
        start = perf_counter()
        try:
            for_config.called(exporter, *given, **options)
        except (MemoryError, LibraryMissingError):
            raise
        except Exception as error:
            return _failure(error, module)
        return path, perf_counter() - start
    except (SystemExit, KeyboardInterrupt) as error:
        return _ended(error, bench.exporter.name, module)


def _ended(error: SystemExit | KeyboardInterrupt, exporter: str, module: torch.nn.Module) -> Failure:
    """Says whose code wanted to end the process: the exporter's, unless it was inside the model's forward."""
    place = models_line(error, module)
    did = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"
    who = f"the model's code (at {place}), which exporter {exporter!r} ran," if place else f"exporter {exporter!r}"
    return Failure(
        "translate",
        type(error).__name__,
        f"{who} {did}. Next step: let it return, or raise an exception that says why",
        details=without_colours(formatted(error)),
        source=place or None,
    )


def resolve(target: str) -> Callable[..., Any]:
    """Imports the callable that an exporter's config names.

    Raises:
        UsageError: there is no such module or attribute, or it cannot be called.
    """
    module_name, _, name = target.rpartition(".")
    if not module_name:
        raise UsageError(f"exporter target {target!r} must be `package.module.function`")
    try:
        found = getattr(for_config.imported(module_name), name)
    except ModuleNotFoundError as error:
        if error.name and not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise LibraryMissingError(error.name, f"exporter {target}") from error
        raise UsageError(f"exporter target {target!r}: there is no module {error.name!r} to import") from error
    except AttributeError as error:
        raise UsageError(f"exporter target {target!r}: module {module_name!r} has no {name!r}") from error
    if not callable(found):
        raise UsageError(f"exporter target {target!r} is a {type(found).__name__}, which cannot be called")
    exporter: Callable[..., Any] = found
    return exporter


def _require_takes(
    spec: ExporterSpec, exporter: Callable[..., Any], positional: tuple[Any, ...], options: Mapping[str, Any]
) -> None:
    """Raises UsageError unless the exporter can be called with these arguments, as far as Python can tell."""
    try:
        signature = inspect.signature(exporter)
    except (TypeError, ValueError):
        return  # some callables written in C do not say what they take
    try:
        signature.bind(*positional, **options)
    except TypeError as error:
        names = ", ".join(options)
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        raise UsageError(
            f"exporter target {spec.target!r} takes {inspect.Signature(bare)}, but an exporter is called as "
            f"f(module, args, kwargs, *, {names}): {error}. Next step: give the function these parameters"
        ) from error


def _failure(error: Exception, module: torch.nn.Module) -> Failure:
    """The exception's class may name its stage in an attribute `stage`, as our own exporter's errors do."""
    named = getattr(error, "stage", "translate")
    stage: Any = named if named in get_args(Stage) else "translate"
    return Failure(
        stage,
        type(error).__name__,
        short_line(error_line(error)),
        details=without_colours(formatted(error)),
        source=models_line(error, module) or None,
    )


def _written(exporter: str, path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise TranslationError(
            f"exporter {exporter!r} returned, but wrote no file {path.name}",
            next_step="write the ONNX file to the keyword argument `path`",
        )
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:
        raise TranslationError(
            f"exporter {exporter!r} wrote a file that is not an ONNX model: {error}",
            next_step="write a serialised onnx.ModelProto to `path`",
        ) from error


def _files(exporter: str, path: Path) -> ModelFiles:
    external: dict[str, Path | str] = {}
    for entry in sorted(path.parent.iterdir()):
        if entry == path:
            continue
        if not entry.is_file() or entry.is_symlink():
            raise TranslationError(
                f"exporter {exporter!r} left {entry.name!r} beside the model, which is not a plain file",
                next_step="write external data as files directly beside `path`",
            )
        external[entry.name] = entry
    return ModelFiles(path, external)
