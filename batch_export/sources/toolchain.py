"""What the results of actions depend on besides their inputs: versions, our own sources, the host. Plain data leaves.

Versions come from package metadata and sources from files, so that nothing heavy (torch above all) is imported here.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from batch_export.digest import Digest, digest_file
from batch_export.environments.making import EnvironmentUnavailableError, wanted_for
from batch_export.environments.request import normal_name
from batch_export.environments.shelf import found
from batch_export.errors import UsageError
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.sources.closure import LocalSources, local_roots
from batch_export.sources.import_names import ImportNames
from batch_export.sources.named_files import named_digests
from batch_export.sources.places import resolve_target
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec, environment_of
from batch_export.steps import STEPS

DISTRIBUTIONS = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
"""Packages whose versions are in keys; which of them are in which key is `keys.py`'s to say."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An environment of a model's or an exporter's own, layered over this one.

    Attributes:
        content: what it holds itself, as one line; or that it is not made yet.
        versions: what of `Toolchain.versions` is another there.
        folder: where it is; empty where it is not made yet.
    """

    content: str
    versions: dict[str, str] = field(default_factory=dict)
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Everything of `toolchain_for`, as it was when the run started; the same value serves the parent and its children.

    Attributes:
        versions: `python`, `DISTRIBUTIONS`, the runtimes' packages and the models' libraries -> version (`absent` when
            not installed).
        own: step -> digest of our own sources.
        targets: builder or exporter, as configs write it -> digest of the local sources that it stands on.
        host: what latency depends on.
        roots: folders of local modules.
        named: what builders' and exporters' arguments name -> digest (see `named_files`).
        environments: what the environments of providers hold, by `environment_name`.
        served: digests of the modules that runtimes run with in processes of their own, by kind.
        plugins: the libraries of plug-in execution providers, as configs write them -> the file's digest, or the
            version of the package that has it.
        layers: the environments of models and exporters, by `layer_name`.
        layer: what the layer holds that this is the toolchain within; empty: none.
    """

    versions: dict[str, str]
    own: dict[str, Digest]
    targets: dict[str, Digest]
    host: dict[str, str]
    roots: tuple[str, ...] = field(default=())
    named: dict[str, Digest] = field(default_factory=dict)
    environments: dict[str, str] = field(default_factory=dict)
    served: dict[str, Digest] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    layer: str = ""

    def within(self, requirements: Sequence[str]) -> Toolchain:
        """Returns the toolchain that there is within an environment of these requirements; itself where none is."""
        if not requirements:
            return self
        layer = self.layers[layer_name(requirements)]
        return replace(self, versions={**self.versions, **layer.versions}, layer=layer.content)

    def folder_of(self, requirements: Sequence[str]) -> str:
        """Returns the folder of an environment of these requirements; empty where there are none."""
        return self.layers[layer_name(requirements)].folder if requirements else ""


def toolchain_for(
    models: Iterable[ModelSpec],
    exporters: Iterable[ExporterSpec],
    roots: tuple[str, ...] | None = None,
    names: ImportNames | None = None,
    store: Path | None = None,
    providers: Iterable[ProviderSpec] = (),
) -> Toolchain:
    """Looks at the installed packages, our own files, the models' and exporters' sources, and the machine.

    Args:
        models: those of the run.
        exporters: the points of its exporter axis.
        roots: folders of local modules; by default this process'.
        names: knows what source files import; anew if None.
        store: the run's store, which is in no digest.
        providers: those of the run.

    Raises:
        UsageError: a `_target_` is not a dotted name.
    """
    models, exporters = list(models), list(exporters)
    folders = local_roots() if roots is None else tuple(map(Path, roots))
    targets = {model.target for model in models if not model.skip}
    targets |= {exporter.target for exporter in exporters if exporter.target != CORE_EXPORTER_TARGET}
    libraries = {library for model in models for library in model.requires}
    libraries |= {library for exporter in exporters for library in exporter.requires}
    asked = {environment_of(model, exporter) for model in models for exporter in exporters} - {()}
    providers = list(providers)
    used = {provider.kind: runtime(provider.kind) for provider in providers}
    here = {provider.kind for provider in providers if not provider.env}
    runtimes = {package for kind in here for package in used[kind].packages}
    names = names or ImportNames()
    sources = LocalSources(folders, names)
    avoided = [] if store is None else [store.resolve()]
    versions = {name: distribution_version(name) for name in sorted({*DISTRIBUTIONS, *runtimes, *libraries})}
    return Toolchain(
        versions={"python": platform.python_version(), **versions},
        own=own_sources(names),
        targets={target: sources.digest(resolve_target(target)[0]) for target in sorted(targets)},
        host=host(),
        roots=tuple(map(str, folders)),
        named={
            text: digest
            for arguments in (*(model.arguments for model in models), *(one.arguments for one in exporters))
            for text, digest in named_digests(arguments, folders, names, avoided).items()
        },
        environments={
            environment_name(provider): environment_content(provider) for provider in providers if provider.env
        },
        served={name: digest_file(Path(kind.served)) for name, kind in used.items() if kind.served},
        plugins={provider.plugin: _plugin_content(provider) for provider in providers if provider.plugin},
        layers={layer_name(requirements): _layer(requirements, versions) for requirements in sorted(asked)},
    )


def environment_name(provider: ProviderSpec) -> str:
    """Returns what the environment of a provider goes by in a toolchain."""
    return ", ".join(sorted(provider.env))


def layer_name(requirements: Sequence[str]) -> str:
    """Returns what a layered environment goes by in a toolchain."""
    return ", ".join(sorted(requirements))


def _layer(requirements: Sequence[str], versions: Iterable[str]) -> Layer:
    try:
        there = found(wanted_for(requirements, layered=True))
    except UsageError as error:
        return Layer(f"unavailable: {error}")
    if there is None:
        return Layer("not made yet")
    own = {normal_name(one.name): one.version for one in importlib.metadata.distributions(path=[str(there.packages)])}
    tops = {
        name: [owner for owner in owners if normal_name(owner) in own]
        for name, owners in _distributions_by_import_name().items()
    }
    changed: dict[str, str] = {}
    for library in versions:
        names = [library, *tops.get(library.partition(".")[0], [])]
        mine = next((normal_name(name) for name in names if normal_name(name) in own), None)
        if mine is not None:
            changed[library] = own[mine]
    return Layer(there.resolved, changed, str(there.folder))


def _plugin_content(provider: ProviderSpec) -> str:
    """Returns what the library of a plug-in execution provider is: one in an environment is in that one's content."""
    path = Path(provider.plugin)
    if path.is_file():
        return digest_file(path)
    return "" if provider.env else distribution_version(provider.plugin)


def environment_content(provider: ProviderSpec) -> str:
    """Returns what a provider's environment holds, or that it is not made yet; nothing is made."""
    try:
        there = found(wanted_for(provider.env, runtime(provider.kind).language))
    except EnvironmentUnavailableError as error:
        return f"unavailable: {error}"
    return there.resolved if there is not None else "not made yet"


@cache
def distribution_version(library: str) -> str:
    """Returns the version of an installed package, given by import name or distribution name, or `absent`."""
    for name in (library, library.replace("_", "-"), library.split(".")[0]):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    names = _distributions_by_import_name().get(library.split(".")[0], [])
    return ",".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names))) or "absent"


@cache
def _distributions_by_import_name() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def own_sources(names: ImportNames | None = None) -> dict[str, Digest]:
    """Returns the digest of the files of ours that a step's results depend on: its module and all that this imports.

    Args:
        names: knows what source files import; anew if None.

    Returns:
        Step -> digest.
    """
    sources = LocalSources((), names)
    return {step: sources.digest(STEPS[step].module) for step in STEPS}


@cache
def host() -> dict[str, str]:
    """Returns what latency depends on: the machine's name and architecture, its CPU model and the cores we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "name": platform.node(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": _cpu_model(),
        "cores": str(cores),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "CPU part"):
            return value.strip()
    return platform.processor()
