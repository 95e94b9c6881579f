"""Answers what a model takes and gives: finds it, its inputs and its free axes, all by running it in eager.

A request (one JSON file) arrives; an answer (another) leaves. Runs in a process of its own:
`python -m batch_export.stages.probe.answer REQUEST ANSWER`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from batch_export.errors import BatchExportError, ModelError
from batch_export.spec import InputSpec
from batch_export.stages.code_state import code_state
from batch_export.stages.model import exported_program
from batch_export.stages.probe import example_sizes, examples, free_axes, outputs, programs
from batch_export.stages.probe.guess import guessed, of_transformers
from batch_export.stages.probe.source import Source, source_of
from batch_export.stages.probe.trial import Trial, run, signature_of
from batch_export.stages.probe_request import Probed, ProbeRequest
from batch_export.words import did_you_mean

_GUESSED = "The inputs are a guess from the weights, at which the model ran: look at sizes, dtypes and ranges."


def probed(request: ProbeRequest) -> Probed:
    """Describes a model.

    Raises:
        ModelError: it cannot be made, or does not run; one sentence.
    """
    source = source_of(request)
    module, notes = source.module, list(source.notes)
    program = exported_program(module)
    if request.inputs:
        leaves = _in_order(module, request.inputs)
    elif program is not None:
        return _of_program(source, program)
    else:
        leaves, note = _found(source)
        notes += [note] if note else []
    found = example_sizes.chosen(leaves, request.sizes, request.unsized, lambda at: run(module, at))
    if not found.base.ran:
        more = f" ({found.note})" if found.note else ""
        raise ModelError(
            f"{signature_of(module)} does not run at {_shown(free_axes.at(leaves, found.sizes))}: {found.base.error}"
            f"{more}. Next step: give other sizes or dtypes with --input"
        )
    notes += [found.note] if found.note else []
    leaves = _with_ranges(leaves, found.base)
    return _described(source, leaves, found.sizes, notes)


def _found(source: Source) -> tuple[list[InputSpec], str]:
    """Inputs that nobody described, and a sentence where they are no more than likely."""
    module = source.module
    if source.example is not None:
        return examples.leaves_of(module, source.example), ""
    known = of_transformers(module)
    if known and run(module, known).ran:
        return known, ""
    own = examples.own_example(module)
    leaves = examples.leaves_of(module, own) if own is not None else []
    return (leaves, "") if leaves and run(module, leaves).ran else (guessed(module), _GUESSED)


def _described(source: Source, leaves: Sequence[InputSpec], sizes: Mapping[str, int], notes: Sequence[str]) -> Probed:
    module = source.module

    def runs(at: Sequence[InputSpec]) -> Trial:
        return run(module, at)

    base = runs(free_axes.at(leaves, sizes))
    axes = free_axes.checked(leaves, sizes, runs, base) if sizes else free_axes.found(leaves, runs, base)
    example = {axis.name: axis.example for axis in axes.axes}
    base = runs(free_axes.at(axes.leaves, example))
    told = outputs.described(base, axes.axes, lambda sizes: runs(free_axes.at(axes.leaves, sizes)))
    return Probed(
        target=source.target,
        arguments=source.arguments,
        requires=source.requires,
        inputs=axes.leaves,
        axes=axes.axes,
        outputs=told,
        notes=(*notes, *axes.notes),
        builder=source.builder,
    )


def _of_program(source: Source, program: torch.export.ExportedProgram) -> Probed:
    """Inputs and axes of an exported program are written in it."""
    leaves, sizes = programs.inputs_of(program)
    base = run(source.module, free_axes.at(leaves, sizes))
    if not base.ran:
        raise ModelError(f"the program does not run at the sizes that it was captured with: {base.error}")
    if sizes:
        return _described(source, _with_ranges(leaves, base), sizes, source.notes)
    note = "The program was captured with fixed sizes, so it has no axes."
    told = outputs.described(base, (), lambda sizes: base)
    return Probed(
        target=source.target,
        arguments=source.arguments,
        inputs=tuple(_with_ranges(leaves, base)),
        outputs=told,
        notes=(*source.notes, note),
    )


def _in_order(module: torch.nn.Module, given: Sequence[InputSpec]) -> list[InputSpec]:
    """Described inputs in forward's order.

    Raises:
        ModelError: forward has no such parameter, or one that was not described.
    """
    names = examples.accepted(module)
    first = dict.fromkeys(str(leaf.path[0]) for leaf in given)
    signature = signature_of(module)
    if names and "**" not in signature:
        for name in first:
            if name not in names:
                near = did_you_mean(name, names) or "."
                raise ModelError(f"{signature} has no parameter {name!r}{near} Next step: rename it")
    missing = [name for name in examples.required(module) if name not in first]
    if missing:
        raise ModelError(
            f"{signature} needs {', '.join(missing)} too. Next step: a further --input '{missing[0]}=float32[batch,8]'"
        )
    return sorted(given, key=lambda leaf: names.index(str(leaf.path[0])) if leaf.path[0] in names else len(names))


def _with_ranges(leaves: Sequence[InputSpec], base: Trial) -> list[InputSpec]:
    """Whole numbers that an embedding looks up go up to its rows; others that nobody gave a range are 0 or 1."""
    rows = dict(base.ranges)
    made = []
    for place, leaf in enumerate(leaves):
        whole = leaf.dtype and not leaf.dtype.startswith(("float", "bfloat", "complex", "bool"))
        if whole and leaf.fill is None:
            most = float(rows[place]) if place in rows else leaf.high
            leaf = replace(leaf, low=leaf.low or 0.0, high=most if most is not None else 2.0)
        made.append(leaf)
    return made


def _shown(leaves: Sequence[InputSpec]) -> str:
    words = (f"{'.'.join(map(str, leaf.path))}={leaf.dtype}{list(leaf.shape)}" for leaf in leaves if leaf.dtype)
    return ", ".join(words)


def main(request_path: Path, answer_path: Path) -> None:
    """Answers the request in a file."""
    request = msgspec.msgpack.decode(request_path.read_bytes(), type=ProbeRequest)
    code = code_state(request.target) if request.compares else {}  # as it is before anything of it has run
    try:
        answer = replace(probed(request), code=code)
    except BatchExportError as error:
        answer = Probed(refusal=str(error).removeprefix(f"model {request.name!r}: "))
    answer_path.write_bytes(msgspec.json.encode(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
