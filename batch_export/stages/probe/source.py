"""What a person names as a model: a factory, a module that is there already, a file, a checkpoint.

A request arrives; the live module leaves, with the `_target_` and the arguments that stand for it in a config, and the
text of a builder where nothing that exists can be the target. Nothing is downloaded.
"""

from __future__ import annotations

import inspect
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from batch_export.errors import ModelError
from batch_export.spec import ModelSpec
from batch_export.stages import model as building
from batch_export.stages.probe_request import ProbeRequest, builder_module
from batch_export.words import class_and_line


@dataclass(slots=True)
class Source:
    """A module and what stands for it.

    Attributes:
        module: in eval mode.
        target: `_target_` of a config.
        arguments: of the builder.
        requires: libraries that the builder needs.
        example: inputs that came with the module, by position or by name; None where none did.
        builder: text of a module with a builder; empty where `target` exists.
        notes: sentences about it.
    """

    module: torch.nn.Module
    target: str
    arguments: dict[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    example: Any = None
    builder: str = ""
    notes: tuple[str, ...] = ()


def source_of(request: ProbeRequest) -> Source:
    """Finds and makes the module.

    Raises:
        ModelError: there is none; one sentence with the next step.
    """
    if not request.path:
        return _from_target(request)
    path = Path(request.path)
    if path.is_dir():
        return _from_checkpoint(request, path)
    return _from_program(request, path) if path.suffix == ".pt2" else _from_pt(request, path)


def _from_target(request: ProbeRequest) -> Source:
    spec = ModelSpec(request.name, request.target, dict(request.arguments), ())
    builder = building.found_builder(spec)
    if isinstance(builder, torch.nn.Module):
        if request.arguments:
            raise ModelError(f"{request.target} is a module and no factory, so it takes no --arg")
        text = _builder_text(request, "", "return found")
        return Source(building.prepared(spec, builder), _written(request), builder=text)
    _require_arguments(request, builder)
    made = building.made_by(spec, builder)
    if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        text = _builder_text(request, "**arguments: Any", "return found(**arguments)[0]")
        example = made[1] if len(made) == 2 else tuple(made[1:]) or None
        module = building.prepared(spec, made[0])
        return Source(module, _written(request), dict(request.arguments), example=example, builder=text)
    return Source(building.prepared(spec, made), request.target, dict(request.arguments))


def _require_arguments(request: ProbeRequest, builder: Any) -> None:
    try:
        signature = inspect.signature(builder)
    except (TypeError, ValueError):
        return  # one written in C: the call will tell
    needed = [
        name
        for name, one in signature.parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    missing = [name for name in needed if name not in request.arguments]
    if missing:
        words = " ".join(f"--arg {name}=VALUE" for name in missing)
        shown = signature.replace(return_annotation=signature.empty)
        raise ModelError(f"{request.target}{shown} needs {', '.join(missing)}. Next step: {words}")


def _written(request: ProbeRequest) -> str:
    return f"{builder_module(request.name)}.build"


def _builder_text(request: ProbeRequest, parameters: str, body: str) -> str:
    module, _, attribute = request.target.rpartition(".")
    return "\n".join(
        [
            f'"""Builder of the model {request.name}, written by batch_export."""',
            "",
            "from typing import Any",
            "",
            "import torch",
            "",
            f"from {module} import {attribute} as found",
            "",
            "",
            f"def build({parameters}) -> torch.nn.Module:",
            '    """Returns the module alone, as a sweep wants it."""',
            f"    {body}",
            "",
        ]
        if "Any" in parameters
        else [
            f'"""Builder of the model {request.name}, written by batch_export."""',
            "",
            "import torch",
            "",
            f"from {module} import {attribute} as found",
            "",
            "",
            f"def build({parameters}) -> torch.nn.Module:",
            '    """Returns the module that is there."""',
            f"    {body}",
            "",
        ]
    )


def _from_program(request: ProbeRequest, path: Path) -> Source:
    spec = ModelSpec(request.name, "torch.export.load", {"f": str(path)}, ())
    try:
        module = building.made_by(spec, torch.export.load)
    except ModelError as error:
        raise ModelError(
            f"{path} is not a program that torch.export.save wrote ({_cause(error)}). "
            "Next step: name the function that makes the model: --from package.module:function"
        ) from error
    program = building.exported_program(module)
    example = program.example_inputs if program is not None else None
    return Source(building.prepared(spec, module), spec.target, spec.arguments, example=example)


def _from_pt(request: ProbeRequest, path: Path) -> Source:
    members = _members(path)
    if any(name.endswith("/constants.pkl") for name in members):
        spec = ModelSpec(request.name, "torch.jit.load", {"f": str(path), "map_location": "cpu"}, ())
        return Source(building.prepared(spec, building.made_by(spec, torch.jit.load)), spec.target, spec.arguments)
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if not members:
            raise ModelError(
                f"{path} is no program: torch.save, torch.jit.save and torch.export.save wrote nothing like it "
                f"({class_and_line(error)}). Next step: --from package.module:function"
            ) from error
        return _from_pickle(request, path)
    raise ModelError(
        f"{path} holds {_weights(held)} and no program. Next step: write a function that makes the module and loads "
        "them, and name it: --from package.module:function"
    )


def _from_pickle(request: ProbeRequest, path: Path) -> Source:
    arguments = {"f": str(path), "map_location": "cpu", "weights_only": False}
    spec = ModelSpec(request.name, "torch.load", arguments, ())
    try:
        module = building.made_by(spec, torch.load)
    except ModelError as error:
        raise ModelError(
            f"{path} holds a pickled object that cannot be read here ({_cause(error)}). Next step: run this where the "
            "module's class can be imported, or --from package.module:function"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"{path} holds a {type(module).__name__} and no module. Next step: --from package.module:function"
        )
    note = "The file is a pickle of the whole module: reading it runs what it says, so keep to files of your own."
    return Source(building.prepared(spec, module), spec.target, arguments, notes=(note,))


def _from_checkpoint(request: ProbeRequest, path: Path) -> Source:
    try:
        settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the folder {path} is no checkpoint of transformers: it has no config.json that can be read. "
            "Next step: save_pretrained writes one"
        ) from error
    named = settings.get("architectures") or ["AutoModel"]
    arguments = {"pretrained_model_name_or_path": str(path), "local_files_only": True, **request.arguments}
    notes: tuple[str, ...] = ()
    if settings.get("use_cache", False) and "use_cache" not in request.arguments:
        arguments["use_cache"] = False
        notes = ("Without its cache of keys and values, which would be further outputs: `use_cache`.",)
    spec = ModelSpec(
        request.name, f"transformers.{named[0]}.from_pretrained", arguments, (), requires=("transformers",)
    )
    try:
        module = building.made_by(spec, building.found_builder(spec))
    except ModelError as error:
        raise ModelError(f"the checkpoint {path} cannot be loaded: {_cause(error)}") from error
    return Source(building.prepared(spec, module), spec.target, arguments, spec.requires, notes=notes)


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _weights(held: Any) -> str:
    if isinstance(held, dict):
        names = [str(name) for name, value in held.items() if isinstance(value, torch.Tensor)]
        if names:
            return f"weights ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"
    return f"a {type(held).__name__}"


def _cause(error: ModelError) -> str:
    return class_and_line(error.__cause__) if error.__cause__ is not None else str(error)
