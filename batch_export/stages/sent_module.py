"""A module that lives in somebody's process, sent to the processes of a sweep as a program and its weights.

A module with example inputs arrives, a `.pt2` file (of scripted modules a `.pt` file) leaves, with what a config says
of it. Runs in the caller's process, which has torch already; the module is left as it was.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.axes import all_cases
from batch_export.calling import exported_inputs
from batch_export.errors import UsageError
from batch_export.exporter.capture.kept_state import capture_undone, run_undone
from batch_export.spec import InputSpec, ModelSpec
from batch_export.stages.model import dynamic_shapes, example_inputs
from batch_export.stages.probe import example_sizes, examples, free_axes
from batch_export.stages.probe.trial import Trial, run, signature_of
from batch_export.stages.probe_request import Probed, ProbeRequest
from batch_export.stages.state import ModuleState
from batch_export.words import class_and_line

_ALIKE = 1e-3
"""Largest difference between module and program, beside the largest value: another program is orders further away."""
_NEXT = "Next step: put the function that makes it into a module file, and give the function: models={name: function}"


def is_module(value: object) -> bool:
    """Whether it is a module, scripted or not."""
    return isinstance(value, torch.nn.Module)


def is_program(value: object) -> bool:
    """Whether it is an exported program."""
    return isinstance(value, torch.export.ExportedProgram)


def sent_program(name: str, program: torch.export.ExportedProgram, folder: Path) -> str:
    """Writes an exported program; returns the file's path."""
    return str(_saved(folder, f"{name}.pt2", lambda path: torch.export.save(program, path)).absolute())


def described_inputs(names: Sequence[str] | None, example: Any, axes: Mapping[str, Mapping[int, str]]) -> Any:
    """Inputs by name as leaves, and example sizes of the axes that `axes` names, as `{input: {dimension: axis}}`.

    Raises:
        UsageError: `axes` names what is not there, or one axis for two sizes.
    """
    leaves = examples.named_leaves(names, example)
    known = {"_".join(map(str, leaf.path)): place for place, leaf in enumerate(leaves) if leaf.dtype}
    sizes: dict[str, int] = {}
    for name, of_input in axes.items():
        if name not in known:
            raise UsageError(f"axes names the input {name!r}, and the inputs are {', '.join(known)}")
        leaf = leaves[known[name]]
        shape = list(leaf.shape)
        for index, axis in of_input.items():
            if not -len(shape) <= index < len(shape):
                raise UsageError(f"axes[{name!r}] names dimension {index} of an input of {len(shape)} dimensions")
            size = int(leaf.shape[index])
            if sizes.setdefault(axis, size) != size:
                raise UsageError(f"axes calls two sizes {axis!r}: {sizes[axis]} and {size} (of {name!r})")
            shape[index] = axis
        leaves[known[name]] = replace(leaf, shape=tuple(shape))
    return tuple(leaves), sizes


def sent(module: torch.nn.Module, request: ProbeRequest, folder: Path) -> Probed:
    """Writes a module below the folder; returns what its config says.

    Args:
        module: the module.
        request: its name and inputs; where no axis is named, axes are found by trying other sizes.
        folder: is made where it is not there.

    Raises:
        UsageError: the module does not run at these inputs, cannot be captured, or the program computes something
            else; one sentence.
    """
    name, inputs = request.name, request.inputs
    with _in_eval_mode(module), torch.random.fork_rng(devices=[]):

        def runs(leaves: Sequence[InputSpec]) -> Trial:
            with _undone(module):
                return run(module, leaves)

        known = example_sizes.chosen(inputs, request.sizes, request.unsized, runs)
        base, sizes = known.base, known.sizes
        if not base.ran:
            more = f" ({known.note})" if known.note else ""
            raise UsageError(f"model {name!r}: {signature_of(module)} does not run at its inputs: {base.error}{more}")
        found = free_axes.checked(inputs, sizes, runs, base) if sizes else free_axes.found(inputs, runs, base)
        told = (*filter(None, [known.note]), *found.notes)
        if isinstance(module, torch.jit.ScriptModule):
            scripted = module
            path = _saved(folder, f"{name}.pt", lambda path: torch.jit.save(scripted, path))
            arguments = {"f": str(path.absolute()), "map_location": "cpu"}
            return Probed("", "torch.jit.load", arguments, (), found.leaves, found.axes, notes=told)
        spec = ModelSpec(name, "", {}, found.leaves, found.axes)
        example = {axis.name: axis.example for axis in found.axes}
        fixed = replace(spec, inputs=tuple(free_axes.at(found.leaves, example)), axes=())
        notes, why = list(told), ""
        for tried, is_auto in ((spec, False), (spec, True), (fixed, False)):
            try:
                with capture_undone(module):
                    program = _captured(tried, module, is_auto)
                _require_alike(tried, module, program)
            except Exception as error:
                why = why or class_and_line(error)
                continue
            if tried.axes != spec.axes:
                notes.append(f"{name} is sent with fixed sizes: with free axes {why}")
            spec = tried
            break
        else:
            raise UsageError(f"the module {name!r} cannot be sent to other processes as a program: {why}. {_NEXT}")
    path = Path(sent_program(name, program, folder))
    return Probed("", "torch.export.load", {"f": str(path)}, (), spec.inputs, spec.axes, notes=tuple(notes))


def _captured(spec: ModelSpec, module: torch.nn.Module, is_auto: bool) -> torch.export.ExportedProgram:
    """Captures with axes of their names, which must hold for every size, or as free as the program lets them be."""
    sizes = {axis.name: axis.example for axis in spec.axes}
    axes = {axis.name: torch.export.Dim.AUTO if is_auto else torch.export.Dim(axis.name) for axis in spec.axes}
    shapes = pytree.tree_map(lambda one: axes.get(one, one), dynamic_shapes(spec, "full" if spec.axes else "static"))
    return torch.export.export(module, (), example_inputs(spec, sizes), dynamic_shapes=shapes, strict=False)


def _require_alike(spec: ModelSpec, module: torch.nn.Module, program: torch.export.ExportedProgram) -> None:
    """Refuses a program that is not what the module is: sweeps take the program for the truth."""
    copy = exported_inputs.as_module(program)
    for sizes in all_cases(spec):
        with torch.no_grad():  # both begin with what the module holds now, which the program shares
            with _undone(module):
                wanted = pytree.tree_leaves(module(**example_inputs(spec, sizes)))
                wanted = [one.clone() if isinstance(one, torch.Tensor) else one for one in wanted]
            with _undone(copy):
                given = pytree.tree_leaves(copy(**example_inputs(spec, sizes)))
                given = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
        for one, other in zip(wanted, given, strict=True):
            if isinstance(one, torch.Tensor) and not _is_like(one, other):
                at = ", ".join(f"{name}={size}" for name, size in sizes.items())
                raise ValueError(f"the captured program computes something else{f' at {at}' if at else ''}")


def _is_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return bool(torch.equal(one, other))
    scale = float(one.abs().nan_to_num(posinf=0.0).max()) if one.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=_ALIKE, atol=_ALIKE * scale, equal_nan=True))


def _saved(folder: Path, name: str, save: Callable[[Path], object]) -> Path:
    """Writes a program whole, under a name that says what is in it; one of the same content keeps its bytes, and so
    the keys.

    What is not written down does not arrive in other processes, and nothing else is asked: scripted modules have their
    attributes in C++, and branches and large constants are in no text of a graph.

    Args:
        folder: is made where it is not there.
        name: of the file, without what says what is in it.
        save: writes it to a path.

    Raises:
        UsageError: torch has no form for what is in it; one sentence.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem, _, suffix = name.rpartition(".")
    beside = folder / f".{stem}.{os.getpid()}.part.{suffix}"
    try:
        save(beside)
        path = folder / f"{stem}_{_content(beside)[:12]}.{suffix}"
        if not path.exists():
            beside.replace(path)
    except OSError:
        raise
    except Exception as error:
        raise UsageError(f"the model {stem!r} cannot be written to a file: {class_and_line(error)}. {_NEXT}") from error
    finally:
        beside.unlink(missing_ok=True)
    return path


_PIECE = 2**20
_NOT_CONTENT = (".debug_pkl", "/.data/serialization_id")
"""Where a scripted module's source was, and a digest of names in the archive, of which its own is one."""


def _content(path: Path) -> str:
    """A digest of what an archive of torch's holds, which does not depend on the archive's own name."""
    content = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(archive.infolist(), key=lambda one: one.filename):
            if entry.filename.endswith(_NOT_CONTENT):
                continue
            content.update(f"{entry.filename.partition('/')[2]}={entry.file_size}\n".encode())
            with archive.open(entry) as stream:
                while piece := stream.read(_PIECE):
                    content.update(piece)
    return content.hexdigest()


@contextmanager
def _undone(module: torch.nn.Module) -> Iterator[None]:
    """Within, the module is run; what that changes of it is put back."""
    if isinstance(module, torch.jit.ScriptModule):  # of which Python sees the buffers alone
        state = ModuleState(module)
        try:
            yield
        finally:
            state.restore()
        return
    with run_undone(module):
        yield


@contextmanager
def _in_eval_mode(module: torch.nn.Module) -> Iterator[None]:
    before = {part: part.training for part in module.modules() if hasattr(part, "training")}  # a frozen one has none
    if before and not getattr(module, "keep_training_mode", False):
        with suppress(NotImplementedError):  # an exported program's module has the mode of its export
            module.eval()
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training
