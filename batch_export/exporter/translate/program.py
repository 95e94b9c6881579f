"""The exported program -> ONNX IR.

Arrives: a `torch.export.ExportedProgram` (functional or not), a registry of translations and axis names. Leaves: an
`onnx_ir.Model` at torchlib's opset and a list of what translated each node. The exported program is only read. Nodes
are translated one by one (`walk.py`); torch's functionalisation, or its decomposition of the whole program, is
asked for only where that is not possible.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.errors import DecompositionError, DynamicShapeError, MissingOperatorError, OnnxExporterError
from batch_export.exporter.capture import effect_tokens
from batch_export.exporter.capture.block_expansion import expanded, sources
from batch_export.exporter.capture.general_sizes import general_sizes
from batch_export.exporter.capture.guards import environment_of
from batch_export.exporter.capture.numbered_reductions import numbered_reductions
from batch_export.exporter.capture.pooled_sizes import pooled_sizes
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.recurrent_shapes import recurrent_shapes
from batch_export.exporter.capture.repeated_values import repeated_values
from batch_export.exporter.capture.rounded_numbers import rounded_numbers
from batch_export.exporter.capture.size_oblivious import size_oblivious
from batch_export.exporter.capture.uncached_views import uncached_views
from batch_export.exporter.graph import metadata, sure_sizes
from batch_export.exporter.graph.block_bodies import Body, NotABodyError
from batch_export.exporter.graph.opsets import TORCHLIB_OPSET
from batch_export.exporter.translate import decompose, shared_at_sizes
from batch_export.exporter.translate.aliasing import given_back_as_views
from batch_export.exporter.translate.boundary import bind_inputs, bind_outputs
from batch_export.exporter.translate.changed_axes import changed_axes_as_views
from batch_export.exporter.translate.free_sizes import numbers_of_sizes, sizes_put_back, sizes_stay_free
from batch_export.exporter.translate.registry import OnnxRegistry
from batch_export.exporter.translate.walk import Translator
from batch_export.exporter.translate.writes import FunctionalisationNeededError


@dataclass(slots=True)
class Translated:
    """What translation made.

    Attributes:
        model: the ONNX model at torchlib's opset, not optimised.
        operators: torch operator -> (how often, what translated it).
        operator_seconds: torch operator -> seconds spent on its translation.
        bodies: repeated blocks, for which the model has calls that are yet to be written out.
        output_kinds: for every graph output its kind (`USER_OUTPUT`, `BUFFER_MUTATION`, ...) and its target's name.
        program: what was translated in the end; torch may have decomposed it first.
    """

    model: ir.Model
    program: torch.export.ExportedProgram
    operators: dict[str, tuple[int, str]] = field(default_factory=dict)
    output_kinds: list[tuple[str, str]] = field(default_factory=list)
    operator_seconds: dict[str, float] = field(default_factory=dict)
    bodies: list[Body] = field(default_factory=list)


def translate_program(
    program: torch.export.ExportedProgram,
    registry: OnnxRegistry,
    axis_names: Mapping[str, str],
    *,
    lowest: Mapping[str, int] = types.MappingProxyType({}),
    fold: bool = True,
    mutations: str = "outputs",
) -> Translated:
    """Translates an exported program at torchlib's opset.

    Args:
        program: what torch.export captured; it is not changed.
        registry: which function translates which operator.
        axis_names: torch's symbol -> axis name.
        lowest: torch's symbol -> the least size that was declared for the axis.
        fold: compute small constant expressions at once and drop Identity nodes.
        mutations: what becomes of buffers and inputs that the program changes, one of `boundary.MUTATIONS`.

    Raises:
        MissingOperatorError: naming every operator of the program that has no translation.
        TranslationError: if a node's translation failed.
    """
    try:
        if sources(program):
            with contextlib.suppress(FunctionalisationNeededError, DecompositionError, NotABodyError):
                return _translate(program, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations)
        program = expanded(program)
        return _translate(program, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations)
    except FunctionalisationNeededError as needed:
        program = _functional(program, needed, axis_names)
    except DecompositionError as error:
        return _translate_decomposed(
            program, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations, error=error
        )
    try:
        return _translate(program, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations)
    except FunctionalisationNeededError as needed:
        reason = DecompositionError(f"{needed} writes to its arguments in a way that torch does not make functional")
    except DecompositionError as failed:
        reason = failed
    return _translate_decomposed(
        program, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations, error=reason
    )


def _functional(
    program: torch.export.ExportedProgram, needed: FunctionalisationNeededError, axis_names: Mapping[str, str]
) -> torch.export.ExportedProgram:
    """The program without writes, by torch.

    Raises:
        DecompositionError: where torch cannot do it.
    """
    try:
        return decomposed(program, {}, axis_names)
    except (OnnxExporterError, MemoryError):
        raise
    except Exception as error:
        raise DecompositionError(
            f"{needed} writes to a view, and torch does not make the program functional: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else ''}",
            next_step="write to the tensor itself, or compute a new one with torch.where or torch.cat",
        ) from error


def _translate_decomposed(
    program: torch.export.ExportedProgram,
    registry: OnnxRegistry,
    axis_names: Mapping[str, str],
    *,
    lowest: Mapping[str, int],
    fold: bool,
    mutations: str,
    error: DecompositionError,
) -> Translated:
    """The last resort: torch decomposes the whole program, down to operators that have a translation."""
    table = {
        target: function
        for target, function in decompose.decompositions().items()
        if registry.lookup(target) is None and isinstance(target, torch._ops.OpOverload)
    }
    try:
        whole = decomposed(program, table, axis_names)
        return _translate(whole, registry, axis_names, lowest=lowest, fold=fold, mutations=mutations)
    except (OnnxExporterError, MemoryError):
        raise
    except Exception as failed:
        raise error from failed


def decomposed(
    program: torch.export.ExportedProgram,
    table: Mapping[torch._ops.OpOverload, decompose.Decomposition],
    axis_names: Mapping[str, str] = types.MappingProxyType({}),
) -> torch.export.ExportedProgram:
    """The program after torch's decompositions.

    Args:
        program: what torch.export captured; it is not changed.
        table: torch operator -> its decomposition.
        axis_names: torch's symbol -> axis name.

    Raises:
        DynamicShapeError: naming an axis that they fixed on the way.
        DecompositionError: naming a result that has another shape or dtype than before.
    """
    free = {node.name: _free_axes(node) for node in program.graph.nodes if node.op == "placeholder"}  # not after:
    with sizes_put_back(environment_of(program)):  # torch may fix symbols that both programs share
        with (
            recurrent_shapes(),
            repeated_values(),
            numbered_reductions(),
            pooled_sizes(),
            quiet(),
            size_oblivious(),
            rounded_numbers(),
            general_sizes(),
            uncached_views(),
            given_back_as_views(program),
            numbers_of_sizes(axis_names) as numbers,
        ):
            made = effect_tokens.decomposed(program, table)
        for node in made.graph.nodes:
            for axis in sorted(free.get(node.name, set()) - _free_axes(node)) if node.op == "placeholder" else ():
                raise DynamicShapeError(
                    f"axis {axis} of the input {node.name} is free in the captured program, and torch's decomposition "
                    f"of the program makes it {node.meta['val'].shape[axis]}",
                    next_step="remove that axis from dynamic_shapes, or give the operators that fix it a translation "
                    "(custom_translation_table)",
                )
    if numbers:
        raise DynamicShapeError(
            "torch's decomposition of the program holds for one size only "
            f"({', '.join(sorted({one.text for one in numbers}))})",
            source=numbers[0].source,
            next_step="make that axis static, or give the operators that fix it a translation "
            "(custom_translation_table)",
        )
    _refuse_other_results(program, made)
    return made


def _refuse_other_results(program: torch.export.ExportedProgram, made: torch.export.ExportedProgram) -> None:
    """Refuses what torch made of a program where it took some operator for another: its shapes are found anew."""
    before, after = _results(program), _results(made)
    for old, new in zip(before, after, strict=False):
        value, other = old.meta.get("val"), new.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        sizes = zip(value.shape, other.shape, strict=False)
        is_alike = value.dim() == other.dim() and not any(
            size != found for size, found in sizes if isinstance(size, int) and isinstance(found, int)
        )
        if value.dtype != other.dtype or not is_alike:
            raise DecompositionError(
                f"torch's decomposition of the program gives {_described(other)} for {old.name}, which is "
                f"{_described(value)}",
                next_step="give the operators that it is computed by a translation (custom_translation_table)",
            )


def _results(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """The nodes of what the model returns; constants and inputs that are no nodes are left out."""
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[name] for name in program.graph_signature.user_outputs if isinstance(name, str) and name in nodes]


def _described(value: torch.Tensor) -> str:
    return f"{value.dtype}{list(value.shape)}".removeprefix("torch.")


def _refuse_fixed(environment: ShapeEnv | None, axis_names: Mapping[str, str]) -> None:
    """Refuses a program of whose free axes torch has made numbers since it was captured."""
    for symbol, size in (environment.replacements if environment is not None else {}).items():
        if str(symbol) in axis_names and size.is_number:
            raise DynamicShapeError(
                f"axis {axis_names[str(symbol)]} is free in the captured program, and torch has since made it {size}",
                next_step="remove that axis from dynamic_shapes, or export an example of another size",
            )


def _free_axes(node: torch.fx.Node) -> set[int]:
    value = node.meta.get("val")
    sizes: list[object] = list(value.shape) if isinstance(value, torch.Tensor) else []
    return {axis for axis, size in enumerate(sizes) if isinstance(size, torch.SymInt) and not size.node.expr.is_number}


def _translate(
    program: torch.export.ExportedProgram,
    registry: OnnxRegistry,
    axis_names: Mapping[str, str],
    *,
    lowest: Mapping[str, int],
    fold: bool,
    mutations: str,
) -> Translated:
    environment = environment_of(program)
    _refuse_fixed(environment, axis_names)
    sure_sizes.declare(environment, lowest)
    translator = Translator(program, registry, axis_names, lowest=lowest, fold=fold)
    with (
        translator.recorder.recording(),
        size_oblivious(),
        sizes_stay_free(environment, "the program"),
        changed_axes_as_views(program),
    ):
        shared_at_sizes.refuse(program, translator.sizes.may_be, axis_names)
        env = bind_inputs(translator)
        translator.run_nodes(program.graph_module, env)
        if translator.missing:
            raise _all_missing(translator.missing)
        outputs, kinds = bind_outputs(translator, env, mutations)
    recorder = translator.recorder
    initializers = [value for value in recorder.initializers.values() if value.uses() or value in outputs]
    graph = ir.Graph(
        inputs=translator.inputs,
        outputs=outputs,
        nodes=recorder.nodes,
        initializers=initializers,
        opset_imports={"": TORCHLIB_OPSET},
        name="main_graph",
    )
    graph.metadata_props[metadata.GRAPH_SIGNATURE] = str(program.graph_signature)
    graph.metadata_props[metadata.RANGE_CONSTRAINTS] = str(program.range_constraints)
    model = ir.Model(graph, ir_version=10, producer_name="batch_export")
    for node in graph.all_nodes():
        if node.domain and node.domain not in graph.opset_imports:
            graph.opset_imports[node.domain] = node.version or 1
    return Translated(
        model, program, translator.operators, kinds, translator.operator_seconds, translator.blocks.bodies
    )


def _all_missing(missing: Mapping[str, OnnxExporterError]) -> MissingOperatorError:
    first = next(iter(missing.values()))
    if len(missing) == 1 and isinstance(first, MissingOperatorError):
        return first
    listed = ", ".join(missing)
    return MissingOperatorError(
        f"{len(missing)} operators have no ONNX translation and no decomposition: {listed}",
        tuple(missing),
        node=first.node,
        operator=first.operator,
        source=first.source,
        next_step="pass custom_translation_table={torch.ops...: function} for each, or rewrite those parts",
    )
