"""What every child has in memory before its first line runs: imported once in the forkserver, shared by all its forks.

Names of modules and functions arrive, imports happen. It must leave the process with one thread, or forking is unsafe;
onnxruntime (which starts one) is therefore never preloaded, and no file that a user may edit is.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from batch_export.runner.hidden_devices import without_devices
from batch_export.spec import CORE_EXPORTER_TARGET, StoreSpec
from batch_export.store.remote import library_of

if TYPE_CHECKING:
    from batch_export.plan.matrix import PlannedCell

LIBRARY_MODULES = {"transformers": ("transformers", "transformers.modeling_utils")}
"""Model libraries that are slow to import and safe to fork, and what of them to import."""

TORCH = "batch_export.runner.preload:torch_alone"
CORE = "batch_export.runner.preload:core"


def preload_for(cells: Sequence[PlannedCell], store: StoreSpec) -> tuple[str, ...]:
    """Returns what children that work on these cells have imported from the start."""
    models = {cell.cell.model: cell.model for cell in cells}
    libraries = [library for model in models.values() for library in model.requires]
    core_exporter = any(cell.exporter.target == CORE_EXPORTER_TARGET for cell in cells)
    remote = library_of(store.remote) if store.remote else None
    return (*entries_for(libraries, core_exporter=core_exporter), *([remote] if remote else []))


def entries_for(libraries: Iterable[str], *, core_exporter: bool) -> tuple[str, ...]:
    """Returns what to preload: module names, or `module:function` to be called.

    Args:
        libraries: import names of what the models need.
        core_exporter: whether our own exporter is used.
    """
    modules = (module for library in sorted(set(libraries)) for module in LIBRARY_MODULES.get(library, ()))
    return (TORCH, *([CORE] if core_exporter else []), *modules)


def preload(entries: Iterable[str]) -> None:
    """Imports the modules, and calls the functions.

    A model library that cannot be imported here is left out: each child that needs it says why. No device is asked
    for, so that each child can use it.
    """
    for entry in entries:
        name, _, function = entry.partition(":")
        with without_devices():
            if name.partition(".")[0] in LIBRARY_MODULES:
                _preload_library(name)
                continue
            module = importlib.import_module(name)
            if function:
                getattr(module, function)()


def _preload_library(name: str) -> None:
    from batch_export.collections.small_models.importing import declare_operators  # lazy: imports torch

    declare_operators()
    with contextlib.suppress(Exception):  # whatever a library raises as it is imported
        importlib.import_module(name)
        exporting = sys.modules.get("batch_export.exporter.capture.whole_numbers")
        if exporting is not None and "." in name:  # behind the last of the library's modules, and only to save time
            exporting.prepare()


def torch_alone() -> None:
    """Imports torch, single-threaded, and the stages that every exporter needs."""
    import torch  # lazy: this module is imported by the parent, which never imports torch

    torch.set_num_threads(1)
    _import_stages("workbench", "check")


def core() -> None:
    """Exports a tiny model, so that registries and caches are warm in every child."""
    from batch_export import exporter  # lazy: imports torch

    exporter.warm()
    _import_stages("capture", "translate")


def _import_stages(*names: str) -> None:
    for name in names:
        importlib.import_module(f"batch_export.stages.{name}")
