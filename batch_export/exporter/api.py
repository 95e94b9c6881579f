"""`export()`: a PyTorch model in, an ONNXProgram out. The page reads like the pipeline's table of contents."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from batch_export.errors import OnnxExporterError, SaveError, VerificationError
from batch_export.exporter import artifacts
from batch_export.exporter.capture import capture as capturing
from batch_export.exporter.capture import dynamic_axes as older_axes
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.arguments import (
    example_inputs,
    is_captured,
    of_exportable_module,
    warn_deprecated,
    warn_of_older_ways,
)
from batch_export.exporter.capture.block_expansion import expanded
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.fake_mode import context_of
from batch_export.exporter.capture.fast_path_answers import warn_of_fast_paths
from batch_export.exporter.capture.finished import GUARD_MODES, GuardMode
from batch_export.exporter.capture.other_sizes import other_sizes
from batch_export.exporter.capture.traced_questions import refuse_other_answers
from batch_export.exporter.capture.turns import in_turn
from batch_export.exporter.diagnostics import verify as verification
from batch_export.exporter.functions import calls
from batch_export.exporter.functions.making import make_functions
from batch_export.exporter.functions.wanted import ModulesAsFunctions, asked_for, present
from batch_export.exporter.graph import metadata
from batch_export.exporter.graph.opsets import DEFAULT_OPSET, default_for
from batch_export.exporter.optimise import opset
from batch_export.exporter.optimise.weight_folding import GROWTH
from batch_export.exporter.program import naming
from batch_export.exporter.program.older_path import export_torchscript
from batch_export.exporter.program.prepared import broadcast, prepare
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.program.provenance import Provenance
from batch_export.exporter.report import markdown
from batch_export.exporter.report.journal import Journal
from batch_export.exporter.translate.boundary import MUTATIONS
from batch_export.exporter.translate.layouts import warn_of_layouts
from batch_export.exporter.translate.registry import OnnxRegistry
from batch_export.plugin import Exporter
from batch_export.saved_programs import loaded

__all__ = ["DEFAULT_OPSET", "export", "to_onnx"]


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | io.BufferedIOBase | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: older_axes.DynamicAxes | None = None,
    keep_initializers_as_inputs: bool = False,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any] | Sequence[Callable[..., Any]]]
    | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    fallback: bool = False,
    guards: GuardMode | None = None,
    allow_guards: bool = False,
    capture_blocks: bool = True,
    passes: Sequence[Any] = (),
    fold_weights: bool = True,
    fold_growth: float = GROWTH,
    registry: OnnxRegistry | None = None,
    prefer_native: str = "auto",
    mutations: str = "outputs",
    modules_as_functions: ModulesAsFunctions = False,
    torchscript: Exporter | None = None,
    **deprecated: Any,
) -> ONNXProgram:
    """Exports a model to ONNX.

    Args:
        model: a module, a callable, an exported program (taken as it is) or the path of a `.pt2` file with one, or a
            scripted module or function. A `torch.onnx.ExportableModule` brings its inputs, shapes and names along.
        args: positional example inputs, or a single one; tensors become inputs of the ONNX model, other values are
            fixed. A dict of parameter names at the end stands for `kwargs` when those are not given.
        f: where to write the model, a path (or a binary file object, without external data); nothing when None.
        kwargs: keyword example inputs.
        export_params: whether weights are written to `f`.
        verbose: print each stage with its time.
        input_names: names of the ONNX inputs, in order.
        output_names: names of the ONNX outputs, in order.
        opset_version: the ONNX opset, from 7 to 28, below 13 if the model has a form. The file has exactly this opset;
            when None, 20, or the first one that has the model's dtypes.
        dynamic_axes: input or output name -> {axis: name} or a list of axes; turned into `dynamic_shapes`, which is
            preferred when both are given.
        keep_initializers_as_inputs: whether weights are also inputs of the file.
        dynamo: False exports with the TorchScript exporter instead; the result's `exporter` says so. Exported programs
            and a `torch.onnx.ExportableModule` have no TorchScript form; they are exported by this one all the same.
        external_data: write weights to `<f>.data`.
        dynamic_shapes: which axes stay free, as a tree like the inputs (or a dict by parameter names) with axis names,
            `torch.export.Dim`s, hints, ints or None; a `ShapesCollection`, an `AdditionalInputs`; True for all axes.
        custom_translation_table: torch operator -> function written with onnxscript's operators (or a list of them).
        report: write a Markdown report into `artifacts_dir`, also when the export fails.
        optimize: whether to run the optimiser.
        verify: run the result in ONNX Runtime on the example inputs, and where axes are free also at other sizes, and
            compare it with the model.
        profile: write the seconds by stage and by operator into `artifacts_dir`.
        dump_exported_program: write the captured program into `artifacts_dir`, as `.pt2` and as text.
        artifacts_dir: where reports, profiles and programs go.
        fallback: use the TorchScript exporter, with a warning, when this one fails; the result's `exporter` says so.
        guards: what becomes of a captured program that holds for some sizes of a dynamic axis only, where the model
            itself takes more, as running both at such sizes shows. "warn" (when None) takes limits such as `n >= 3`
            beyond which the program fails, with a warning, and refuses a program that would give wrong numbers; "error"
            refuses both; "allow" takes both, and also what the program takes for granted about the data (it is then run
            against the model first). Guards and assumptions that were taken are in the model's metadata
            (`batch_export.guards`, `batch_export.assumptions`) and in the report.
        allow_guards: the older spelling of `guards="allow"`.
        capture_blocks: capture blocks that are alike (the layers of a transformer) twice, translate and optimise one of
            them, and write it out for the others; the graph and the file are the same as by tracing each, and
            `program.captured.blocks` says what was shared.
        passes: onnx-ir passes to run after the optimiser.
        fold_weights: compute what depends on weights alone when a file is written: BatchNormalization merged into a
            convolution, transposed and concatenated weights, position tables, masks; small products of one input
            (queries, keys and values) become one. The program keeps the nodes, so `apply_weights` works as before.
        fold_growth: how much the weights in a file may grow by that, as a share of their bytes; what would grow more
            stays a node.
        registry: translations to use; `opset_version` is its own when not given.
        prefer_native: operators that newer opsets have whole (`GroupNormalization` from 21 on, `Attention` and
            `RMSNormalization` from 23 on) are written as those where ONNX Runtime's kernel is known to run right
            (`auto`), `always` (an error where ONNX has none), or `never`.
        mutations: buffers and inputs that forward changes are further outputs called `<name>_mutated` (`outputs`), an
            error (`error`), or left out of the file (`drop`).
        modules_as_functions: calls of modules as functions of the ONNX model: True for all modules, or classes of
            modules, themselves or by their dotted names. Calls that do the same share one function, which takes its
            weights as inputs; `program.functions` says what was made. Files hold the same operators as without.
        torchscript: the TorchScript exporter; `batch_export.export` brings it along.
        **deprecated: `export_modules_as_functions` is `modules_as_functions`; `training`, `operator_export_type`,
            `do_constant_folding`, `custom_opsets` and `autograd_inlining` only warn.

    Returns:
        The program; `program.model` is the ONNX model as `onnx_ir.Model`.

    Raises:
        OnnxExporterError: the subclass names the stage; the message names node, operator, source line and next step.
        TypeError: for a parameter that does not exist.
        ValueError: for a choice that does not exist, or `guards` that contradict `allow_guards`.
    """
    warn_deprecated(deprecated)
    modules = modules_as_functions or deprecated.get("export_modules_as_functions")
    modules = list(modules) if isinstance(modules, Iterable) and not isinstance(modules, str) else modules
    functions = asked_for(modules)
    if mutations not in MUTATIONS:
        raise ValueError(f"mutations={mutations!r}: choose {', '.join(MUTATIONS)}")
    model = loaded(model)
    dynamo = dynamo or is_captured(model)
    warn_of_older_ways(f, dynamic_axes, dynamo)
    args, kwargs, dynamic_shapes, input_names, output_names = of_exportable_module(
        model, args, kwargs, dynamic_shapes, input_names, output_names
    )
    guard_mode = _guard_mode(guards, allow_guards)
    arguments, keywords = example_inputs(model, args, kwargs)
    keywords, input_names = capturing.in_forward_order(model, arguments, keywords, input_names)
    target_opset = _opset(opset_version, registry)
    journal = Journal(model=type(model).__name__, opset_version=target_opset, verbose=bool(verbose))
    folder = Path(artifacts_dir)
    save = _Saving(f, export_params, keep_initializers_as_inputs, external_data)
    older = _older_form(model, arguments, keywords, dynamic_shapes, dynamic_axes, input_names, output_names)
    if not dynamo:
        if functions != frozenset():
            raise OnnxExporterError(
                "the TorchScript exporter writes no functions",
                next_step="leave out dynamo=False, or modules_as_functions",
            )
        program = export_torchscript(
            torchscript, model, arguments, keywords, target_opset, older, input_names, output_names, journal
        )
        save(program, journal)
        return program
    try:
        opset.check_opset(target_opset)
        with journal.stage("capture"):
            captured = capturing.capture(
                model,
                arguments,
                keywords,
                dynamic_shapes=older,
                guards=guard_mode,
                capture_blocks=capture_blocks,
            )
            journal.captured = captured
            if captured.asked_if_captured and not verify:
                module = capturing.as_module(model)
                allows = guard_mode == "allow"
                noted, elsewhere = captured.asked_if_captured, other_sizes(captured, arguments, keywords)
                refuse_other_answers(noted, module, arguments, keywords, only_warns=allows, elsewhere=elsewhere)
        warn_of_layouts(captured, model, arguments, keywords)
        warn_of_fast_paths(model, arguments, keywords)
        if opset_version is None and registry is None:
            nodes = captured.traced.graph.nodes
            target_opset = journal.opset_version = default_for(node.meta.get("val") for node in nodes)
        if dump_exported_program:
            artifacts.dump_program(captured.program, folder)
        program = to_onnx(
            captured,
            target_opset,
            input_names=input_names,
            output_names=output_names,
            custom_translation_table=custom_translation_table,
            optimize=optimize,
            passes=passes,
            fold_weights=fold_weights,
            fold_growth=fold_growth,
            registry=registry,
            prefer_native=prefer_native,
            mutations=mutations,
            modules_as_functions=modules,
            journal=journal,
            reusable=False,
        )
        if dynamic_axes and dynamic_shapes is None:
            older_axes.name_outputs(program.model, dynamic_axes, output_names)
        save(program, journal)
        if verify:
            with journal.stage("verify"):
                _refuse_fake(program)
                journal.verification = verification.verify_program(program, model, arguments, keywords)
                verification.require(journal.verification, program)
                journal.compared_at.append("the example inputs")
                journal.verification += verification.verify_other_size(
                    program, model, arguments, keywords, journal.compared_at
                )
        if profile:
            artifacts.write_profile(program, folder)
    except OnnxExporterError as error:
        journal.error = error
        if not fallback or isinstance(error, SaveError):
            raise
        lost = ", which writes no functions" if functions != frozenset() else ""
        warnings.warn(f"the export failed and falls back to the TorchScript exporter{lost}: {error}", stacklevel=2)
        program = export_torchscript(
            torchscript, model, arguments, keywords, target_opset, older, input_names, output_names, journal
        )
        save(program, journal)
    finally:
        if report:
            markdown.write_or_warn(journal, folder)
    return program


def _guard_mode(guards: GuardMode | None, allow_guards: bool) -> GuardMode:
    """What becomes of guards, by the parameter and its older spelling."""
    mode = guards if guards is not None else "allow" if allow_guards else "warn"
    if mode not in GUARD_MODES:
        raise ValueError(f"guards is {mode!r}; it is one of {', '.join(map(repr, GUARD_MODES))}")
    if allow_guards and mode != "allow":
        raise ValueError(f"allow_guards=True means guards='allow', and guards is {mode!r}; leave out allow_guards")
    return mode


def _refuse_fake(program: ONNXProgram) -> None:
    own = program.captured.program.state_dict.values() if program.captured is not None else ()
    on_meta = any(isinstance(one, torch.Tensor) and one.is_meta for one in own)
    if program.fake_context is not None or on_meta:
        raise VerificationError(
            f"a model {'on the meta device' if on_meta else 'made in fake mode'} has no weights to run with",
            next_step="leave out verify=True, call program.apply_weights(), and compare with the real model",
        )


def _opset(opset_version: int | None, registry: OnnxRegistry | None) -> int:
    if opset_version is not None:
        return opset_version
    return registry.opset_version if registry is not None else DEFAULT_OPSET


class _Saving:
    """Writes a program to `f`, if there is one, as the caller of `export` wants it."""

    def __init__(
        self,
        f: str | os.PathLike[str] | io.BufferedIOBase | None,
        weights: bool,
        weights_as_inputs: bool,
        external_data: bool,
    ) -> None:
        self._options: dict[str, Any] = {
            "include_initializers": weights,
            "keep_initializers_as_inputs": weights_as_inputs,
            "external_data": external_data if f is None or isinstance(f, (str, os.PathLike)) else None,
        }
        self._f = f

    def __call__(self, program: ONNXProgram, journal: Journal) -> None:
        if self._f is not None:
            with journal.stage("save"):
                program.save(self._f, **self._options)
            journal.passes = [*journal.passes, *program.folding]


def _older_form(
    model: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    dynamic_shapes: object,
    dynamic_axes: older_axes.DynamicAxes | None,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> Any:
    """`dynamic_shapes`, or what `dynamic_axes` means in their terms."""
    if dynamic_shapes is not None or not dynamic_axes:
        return dynamic_shapes
    by_name = capturing.named_inputs(model, args, kwargs)
    return older_axes.to_dynamic_shapes(dynamic_axes, by_name, input_names, output_names)


@in_turn
def to_onnx(
    captured: Captured,
    opset_version: int,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    custom_translation_table: Mapping[Callable[..., object], Any] | None = None,
    optimize: bool = True,
    passes: Sequence[object] = (),
    fold_weights: bool = True,
    fold_growth: float = GROWTH,
    registry: OnnxRegistry | None = None,
    prefer_native: str = "auto",
    mutations: str = "outputs",
    modules_as_functions: ModulesAsFunctions = False,
    journal: Journal | None = None,
    reusable: bool = True,
) -> ONNXProgram:
    """Turns a captured program into ONNX at one opset; one capture may be turned into several.

    What does not depend on the opset is done once for all opsets at which the same translations are used. `reusable`
    says whether any more are expected.

    Raises:
        OnnxExporterError: as `export`.
    """
    journal = journal or Journal(model="", opset_version=opset_version)
    asked = asked_for(modules_as_functions)
    wanted = asked if asked == frozenset() else present(asked, captured.traced)
    opset.check_opset(opset_version)
    registry = (registry or OnnxRegistry()).at(opset_version, None if prefer_native == "auto" else prefer_native)
    for target, functions in (custom_translation_table or {}).items():
        registry.register_target(target, functions)
    made = prepare(captured, registry, passes, journal, optimize=optimize, mutations=mutations, reusable=reusable)
    translated, model = made.translated, made.model
    journal.passes = made.passes
    with journal.stage("opset"):
        opset.set_opset(model, opset_version, native=registry.prefer_native != "never")
    naming.rename(model, input_names, output_names)
    graph = model.graph
    ranges = graph.metadata_props[metadata.RANGE_CONSTRAINTS]
    graph.metadata_props[metadata.RANGE_CONSTRAINTS] = naming.replace_words(ranges, captured.axis_names)
    shapes.require_free(captured.traced, [None if value.shape is None else list(value.shape) for value in graph.inputs])
    if captured.derived_names:
        naming.rename_axes(model, captured.derived_names)
    naming.keep_apart(model, broadcast(captured))
    limits = [*captured.restrictions, *captured.not_one]
    if limits:
        model.metadata_props[metadata.GUARDS] = "\n".join(guard.condition for guard in limits)
    if captured.assumptions:
        taken = "\n".join(one.condition for one in captured.assumptions)  # no path: the file's bytes stay the same
        model.metadata_props[metadata.ASSUMPTIONS] = taken
    provenance = Provenance(
        operators=translated.operators,
        operator_seconds=translated.operator_seconds,
        output_kinds=tuple(translated.output_kinds),
        passes=tuple(journal.passes),
        seconds=journal.seconds,
        captured=captured,
        fake_context=context_of(captured.traced),
        diagnostic_context=journal,
    )
    program = ONNXProgram(model, captured.traced, provenance)
    if not passes:  # a caller's pass may hold on to the model
        program.keep_to_itself()
    if wanted:
        calls.note(model, expanded(translated.program))
        program.functions = journal.functions = make_functions(model, wanted)
    program.fold_weights, program.fold_growth = fold_weights, fold_growth
    return program


def warm() -> None:
    """Fills every per-process cache (torchlib, decompositions, rewrite rules, torch.export) by one tiny export."""

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.adaptive_avg_pool1d(torch.relu(self.linear(x)).std(-1, keepdim=True), 1)

    export(Tiny().eval(), (torch.ones(2, 2, 2),), dynamic_shapes=({0: "batch"},), opset_version=DEFAULT_OPSET)
