"""Optimisation of a translated model: small passes, each of which says what it did. Weights are never computed with.

Arrives: an `onnx_ir.Model`. Leaves: the same model, changed in place, and one line per pass with node counts. Constant
expressions were computed while the graph was recorded; the passes apply rewrite rules (`rewriting.py`), merge what is
equal (`equal_parts.py`) and remove what is left over (`dead_code.py`). Parameters keep their tensor objects, so rules
that fold a weight into another (batch normalisation into a convolution, say) are left to `weight_folding.py`, which is
at work when a file is written.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from batch_export.errors import OptimisationError
from batch_export.exporter.graph import block_bodies
from batch_export.exporter.graph.block_bodies import Body
from batch_export.exporter.optimise import (
    body_lengths,
    constant_folding,
    dead_code,
    equal_parts,
    known_sizes,
    moved_axes,
    rewriting,
    shorter_forms,
)
from batch_export.legalise.nested import graphs_of

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did: its name, the node counts before and after, rewrites made, and seconds.

    Attributes:
        remark: what the pass left undone and could do, in a sentence; empty where there is no such thing.
    """

    name: str
    nodes_before: int
    nodes_after: int
    changes: int
    seconds: float
    remark: str = ""


PASSES: tuple[tuple[str, Callable[[ir.Model], int]], ...] = (
    ("rewrite", rewriting.rewrite),
    ("fold", constant_folding.fold),
    ("identity", dead_code.remove_identities),
    ("shorter forms", shorter_forms.shorten),
    ("sizes", known_sizes.simplify),
    ("moved axes", moved_axes.move),
    ("weights", equal_parts.share_weights),
    ("constants", equal_parts.merge_constants),
    ("subexpressions", equal_parts.merge_subexpressions),
    ("dead code", dead_code.remove_dead_code),
    ("outputs", equal_parts.separate_outputs),
)


_OWN = frozenset({*(name for name, _ in PASSES), "blocks", "seams"})
_SEPARATE = 4
"""Up to which of them a model's own nodes are optimised before those of its blocks are written out."""


def _resolve(one: object) -> Any:
    """A pass as it is; a dotted name (as configs have it) as the pass that it names.

    Raises:
        OptimisationError: naming what cannot be imported.
    """
    if not isinstance(one, str):
        return one
    module, _, name = one.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptimisationError(
            f"there is no pass {one!r}: {error}", next_step="name it as package.module.Class or package.module.object"
        ) from error
    return found() if isinstance(found, type) else found


def _keep_known(outputs: Sequence[ir.Value], known: Sequence[tuple[Any, ir.Shape | None, dict[str, str]]]) -> None:
    """Writes onto the outputs what was known of them: a pass may have put a value in their place that says less."""
    if len(outputs) != len(known):
        return
    for value, (kind, shape, properties) in zip(outputs, known, strict=True):
        value.type = value.type if value.type is not None else kind
        if value.shape is None or (shape is not None and len(shape) == len(value.shape)):
            value.shape = _better(value.shape, shape)
        for name, text in properties.items():
            value.metadata_props.setdefault(name, text)


def _better(shape: ir.Shape | None, known: ir.Shape | None) -> ir.Shape | None:
    """Axis by axis the size that says most: a number, then a name."""
    if shape is None or known is None:
        return known if shape is None else shape

    def says(size: Any) -> int:
        return 2 if isinstance(size, int) else int(size.value is not None)

    return ir.Shape([max(pair, key=says) for pair in zip(known, shape, strict=True)])


def node_count(model: ir.Model) -> int:
    """The nodes of a model, those of bodies too."""
    return sum(map(len, graphs_of(model.graph)))


def _with_bodies(
    bodies: Sequence[Body],
    run: Callable[[str, Callable[[ir.Model], int]], int],
    rounds: Callable[[tuple[str, Callable[[ir.Model], int]]], None],
) -> Sequence[tuple[str, Callable[[ir.Model], int]]]:
    """Optimises bodies apart from the model that calls them, and writes them out; returns the passes yet to be run."""
    for name, function in PASSES[1:_SEPARATE]:
        run(name, function)
    has_own = block_bodies.share_constants(bodies)
    for body in bodies:
        optimise(body.model)
    seams: list[ir.Value] = []

    def write_out(model: ir.Model) -> int:
        seams.extend(block_bodies.written_out(model, bodies))
        return sum(len(body.calls) for body in bodies)

    run("blocks", write_out)
    rounds(("seams", lambda model: rewriting.rewrite_near(model, seams)))
    return PASSES[1 if has_own else 2 :]


def optimise(
    model: ir.Model, extra: Sequence[object] = (), bodies: Sequence[Body] = (), *, standard: bool = True
) -> list[PassReport]:
    """Runs the passes in place.

    Args:
        model: the model to change.
        extra: onnx-ir passes, or their dotted names, that run after ours, in order.
        bodies: repeated blocks that the model calls: they are optimised once each, and written out for every call.
        standard: whether ours run.

    Returns:
        One report per pass that ran.

    Raises:
        OptimisationError: naming the pass that failed.
    """
    reports: list[PassReport] = []
    count = node_count(model)
    has_bodies = count != len(model.graph)

    def run(name: str, function: Callable[[ir.Model], int]) -> int:
        nonlocal count, has_bodies
        before, begun = count, time.perf_counter()
        known = [(value.type, value.shape, dict(value.metadata_props)) for value in model.graph.outputs]
        try:
            changes = function(model)
        except Exception as error:
            raise OptimisationError(
                f"the optimiser's pass {name!r} failed: {type(error).__name__}: {error}",
                next_step="export with optimize=False and report this model",
            ) from error
        _keep_known(model.graph.outputs, known)
        seconds = time.perf_counter() - begun
        if has_bodies or name not in _OWN:  # ours make no bodies
            count = node_count(model)
            has_bodies = count != len(model.graph)
        else:
            count = len(model.graph)
        reports.append(PassReport(name, before, count, changes, seconds))
        return changes

    def rounds(one_round: tuple[str, Callable[[ir.Model], int]]) -> None:
        for _ in range(_ROUNDS):
            if not run(*one_round):
                break

    if standard:
        rounds(PASSES[0])
        for name, function in _with_bodies(bodies, run, rounds) if bodies else PASSES[1:]:
            run(name, function)
    body_lengths.tell(model)
    for one in map(_resolve, extra):
        run(getattr(one, "name", type(one).__name__), lambda given, one=one: int(one(given).modified))  # type: ignore[misc]
    return reports
