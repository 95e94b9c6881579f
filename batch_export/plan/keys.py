"""The keys of actions: what each one's result depends on, as named entries. Specs and a toolchain arrive.

Actions leave. Whatever could change the bytes is an entry; names, tags, descriptions, tolerances and expectations never
are. Pure: nothing is looked up, read or executed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from batch_export import axes
from batch_export.action import Action, ModelArtifact
from batch_export.contract import Contract
from batch_export.digest import Digest, canonical_json, digest_value
from batch_export.exact_json import exact, to_exact
from batch_export.plan.matrix import PlannedCell
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import WARM_UP, ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.sources.named_files import texts
from batch_export.sources.toolchain import Toolchain, environment_name
from batch_export.spec import ExporterSpec
from batch_export.steps import STEPS

_EXPORT_LIBRARIES = ("onnx", "onnxscript", "onnx-ir", "numpy")


def reference_action(cell: PlannedCell, toolchain: Toolchain) -> Action:
    """Eager outputs of a model at all its sizes; the same for every setting, opset, exporter and provider."""
    entries = _model_entries(cell, toolchain) | {
        "axes": _text(cell.model.axes),
        "variants": _text(cell.model.variants),
    }
    return _action("Reference", entries, toolchain, cell.model.name)


def oracle_action(cell: PlannedCell, reference: Digest, case: int, toolchain: Toolchain) -> Action:
    """Eager in float64 at one of a model's cases; the same for every file of the model."""
    entries = _model_entries(cell, toolchain) | {
        "reference": reference,
        "case": _text([case, axes.cases(cell.model)[case]]),
    }
    return _action("Oracle", entries, toolchain, f"{cell.model.name} in float64")


def capture_action(cell: PlannedCell, toolchain: Toolchain) -> Action:
    """The exported program of a model at one dynamic-shape setting."""
    entries = _model_entries(cell, toolchain) | _setting_entries(cell, toolchain)
    if cell.model.guards != "warn":
        entries["model.guards"] = cell.model.guards
    return _action("Capture", entries, toolchain, cell.cell.capture)


def translate_action(cell: PlannedCell, graph_digest: str, toolchain: Toolchain) -> Action:
    """The ONNX file of a captured program.

    Of the model only what names inputs, outputs and axes in the file is in the key: an edit of its sources that leaves
    the graph alone stops here. The digest of the graph is also that of its weights, which are folded here.
    """
    entries = {
        "graph": graph_digest,
        "opset": str(cell.cell.opset),
        "dynamic": cell.cell.dynamic,
        **_exporter_entries(cell.exporter, toolchain),
        "inputs": _text([(leaf.path, leaf.dtype, leaf.shape) for leaf in cell.model.inputs]),
        "output_names": _text(cell.model.output_names),
        **_versions(toolchain, "python", "torch", *_EXPORT_LIBRARIES),
    }
    return _action("Translate", entries, toolchain, cell.cell.file)


def plugin_action(cell: PlannedCell, toolchain: Toolchain) -> Action:
    """The ONNX file that a plug-in exporter writes from the module, in one go: everything is in the key."""
    entries = {
        **_model_entries(cell, toolchain),
        **_setting_entries(cell, toolchain),
        "opset": str(cell.cell.opset),
        "output_names": _text(cell.model.output_names),
        "exporter.target": cell.exporter.target,
        "exporter.source": toolchain.targets[cell.exporter.target],
        **_versions(toolchain, *cell.exporter.requires, *_EXPORT_LIBRARIES),
    }
    return _action("Plugin", entries, toolchain, cell.cell.file)


def check_action(model: ModelArtifact, requested: Contract, toolchain: Toolchain) -> Action:
    """What a file promises beside what was asked for."""
    entries = {**_file_entries(model), "contract": _text(requested), **_versions(toolchain, "onnx", "onnx-ir")}
    return _action("Check", entries, toolchain, model.onnx[:12])


def run_action(
    model: ModelArtifact,
    reference: Digest,
    cases: Sequence[int],
    provider: ProviderSpec,
    threads: int,
    requested: Contract,
    toolchain: Toolchain,
    oracles: Sequence[tuple[int, Digest]] = (),
) -> Action:
    """How a file's outputs compare with eager's. Tolerances are in no key: they are applied to the facts.

    `oracles` are cases with the files of their values in float64; an entry of the key only where there are any.
    """
    entries = {
        **_file_entries(model),
        **_provider_entries(provider, toolchain),
        "reference": reference,
        "cases": _text(cases),
        "threads": str(threads),
        "contract": _text(requested),
        **({"oracles": _text(oracles)} if oracles else {}),
    }
    return _action("Run", entries, toolchain, f"{model.onnx[:12]}/{provider.name}")


def ties_action(
    cell: PlannedCell,
    file: ModelArtifact,
    reference: Digest,
    cases: Sequence[int],
    threads: int,
    requested: Contract,
    toolchain: Toolchain,
) -> Action:
    """Whether a file differs from eager only where scores tie."""
    entries = {
        **_model_entries(cell, toolchain),
        **_file_entries(file),
        **_provider_entries(cell.provider, toolchain),
        "reference": reference,
        "cases": _text([(case, axes.cases(cell.model)[case]) for case in cases]),
        "threads": str(threads),
        "contract": _text(requested),
    }
    return _action("Ties", entries, toolchain, f"{cell.cell.file} on {cell.provider.name}")


def measure_action(
    model: ModelArtifact, reference: Digest, provider: ProviderSpec, measure: MeasureSpec, toolchain: Toolchain
) -> Action:
    """A file's latency on this host."""
    entries = {
        **_file_entries(model),
        **_provider_entries(provider, toolchain),
        **_measure_entries(measure, toolchain),
        **({} if provider.warm_up == WARM_UP else {"provider.warm_up": str(provider.warm_up)}),
        "reference": reference,
    }
    return _action("Measure", entries, toolchain, f"{model.onnx[:12]}/{provider.name}")


def eager_action(cell: PlannedCell, measure: MeasureSpec, toolchain: Toolchain) -> Action:
    """The model's own latency on this host, at the example sizes."""
    sizes = {"axes": _text(axes.example_sizes(cell.model))}
    entries = _model_entries(cell, toolchain) | _measure_entries(measure, toolchain) | sizes
    return _action("Eager", entries, toolchain, cell.model.name)


def _action(step: str, entries: dict[str, str], toolchain: Toolchain, description: str) -> Action:
    mnemonic = STEPS[step].mnemonic
    named = {**entries, "batch_export": toolchain.own[step]}
    return Action(mnemonic, tuple(sorted(named.items())), f"{mnemonic} {description}")


def _model_entries(cell: PlannedCell, toolchain: Toolchain) -> dict[str, str]:
    """What decides about the module and its inputs."""
    model = cell.model
    libraries = _versions(toolchain, *model.requires)
    return {
        "model.target": model.target,
        "model.source": toolchain.targets[model.target],
        "model.arguments": _arguments(model.arguments),
        "model.inputs": _text(model.inputs),
        "model.seed": str(model.seed),
        **({"model.seed_given": "true"} if model.seed_given and not model.seed else {}),
        **({"model.caches": _text(model.caches)} if model.caches else {}),
        **_named_entries("model.files", model.arguments, toolchain),
        **({"environment": toolchain.layer} if toolchain.layer else {}),
        **libraries,
        **_versions(toolchain, "python", "torch", "numpy"),
    }


def _setting_entries(cell: PlannedCell, toolchain: Toolchain) -> dict[str, str]:
    own = _exporter_entries(cell.exporter, toolchain)
    return {"axes": _text(cell.model.axes), "dynamic": cell.cell.dynamic, **own}


def _exporter_entries(exporter: ExporterSpec, toolchain: Toolchain) -> dict[str, str]:
    entries = {"exporter.arguments": _arguments(exporter.arguments)}
    return entries | _named_entries("exporter.files", exporter.arguments, toolchain)


def _named_entries(entry: str, arguments: dict[str, Any], toolchain: Toolchain) -> dict[str, str]:
    """Digests of the files that arguments name; no entry where they name none."""
    found = {text: toolchain.named[text] for text in texts(arguments) if text in toolchain.named}
    return {entry: _text(found)} if found else {}


def _file_entries(model: ModelArtifact) -> dict[str, str]:
    return {"file.onnx": model.onnx, "file.external": digest_value(model.external) if model.external else ""}


def _provider_entries(provider: ProviderSpec, toolchain: Toolchain) -> dict[str, str]:
    kind = runtime(provider.kind)
    entries = {
        "provider.kind": provider.kind,
        "provider.execution_provider": provider.execution_provider,
        "provider.options": _text(provider.options),
        "provider.graph_optimization": provider.graph_optimization,
        "machine": toolchain.host["machine"],
        **_versions(toolchain, "numpy"),
    }
    for name in ("variables", "device", "io_binding", "after", "plugin"):  # no entry where nothing is said
        if said := getattr(provider, name):
            entries[f"provider.{name}"] = _text(said)
    if provider.fallback_limit < 1:
        entries["provider.fallback_limit"] = str(provider.fallback_limit)
    if provider.plugin:
        entries["provider.library"] = toolchain.plugins[provider.plugin]
    if kind.served and kind.apart(provider):
        entries["provider.module"] = toolchain.served[kind.name]
    if provider.env:
        return {**entries, "environment": toolchain.environments[environment_name(provider)]}
    return {**entries, **_versions(toolchain, *kind.packages)}


def _measure_entries(measure: MeasureSpec, toolchain: Toolchain) -> dict[str, str]:
    entries = {f"host.{name}": value for name, value in toolchain.host.items()}
    for name in ("budget_s", "min_s", "min_runs", "threads"):
        entries[f"measure.{name}"] = str(getattr(measure, name))
    return entries


def _versions(toolchain: Toolchain, *names: str) -> dict[str, str]:
    return {f"version.{name}": toolchain.versions[name] for name in names}


def _text(value: Any) -> str:
    return canonical_json(exact(value)).decode()


def _arguments(arguments: dict[str, Any]) -> str:
    """Keyword arguments in the config's order, and dicts in them in theirs: who takes `**kwargs` sees both."""
    said = to_exact(arguments)
    try:
        return msgspec.json.encode(said).decode()
    except UnicodeEncodeError:  # a name that is no text in UTF-8
        return canonical_json(said).decode()
