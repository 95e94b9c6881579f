"""The runtimes that there are: the shipped ones, and those of installed packages.

A package adds one by an entry point of the group `batch_export.runtimes` whose name is the `kind` that configs write
and whose object is a `kinds.Runtime`. A plug-in's module is imported only when a config names its kind.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from functools import cache
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.runtime.kinds import Runtime, Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.words import did_you_mean, error_line

GROUP = "batch_export.runtimes"

_SERVED = Path(__file__).parent / "served"
_SCRIPTS = Path(__file__).parent / "scripts"


def _open_onnxruntime(path: Path, provider: ProviderSpec, threads: int) -> Session:
    from batch_export.runtime.ort import OrtSession  # lazy: it imports numpy

    return OrtSession(path, provider, threads)


def _open_reference(path: Path, provider: ProviderSpec, threads: int) -> Session:
    from batch_export.runtime.reference import ReferenceSession  # lazy: it imports numpy

    del provider, threads  # it has no options and runs in one thread
    return ReferenceSession(path)


def _onnxruntime_providers() -> Collection[str]:
    import onnxruntime  # lazy: it starts a thread, which a process that forks must not have without need

    return list(onnxruntime.get_available_providers())


def _of_python(name: str, called: str, *packages: str, functions: bool) -> Runtime:
    """A package of Python that always runs in a process and an environment of its own."""
    return Runtime(
        name=name,
        called=called,
        library=name,
        packages=packages or (name,),
        open=None,
        served=str(_SERVED / f"{name}.py"),
        functions=functions,
        script=str(_SCRIPTS / f"{name}.py"),
    )


def _of_node(name: str, called: str, library: str = "", module: str = "onnxruntime_js.cjs") -> Runtime:
    """A package of Node, likewise; all are called in the same way, one of them in a browser."""
    return Runtime(
        name=name,
        called=called,
        library=library or name,
        packages=(),
        open=None,
        served=str(_SERVED / module),
        language="node",
        script="" if library else str(_SCRIPTS / "again.cjs"),
    )


RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            name="onnxruntime",
            called="ONNX Runtime",
            library="onnxruntime",
            packages=("onnxruntime",),
            open=_open_onnxruntime,
            execution_providers=_onnxruntime_providers,
            always_has=frozenset({"CPUExecutionProvider"}),
            served=str(_SERVED / "onnxruntime.py"),
            script=str(_SCRIPTS / "onnxruntime.py"),
        ),
        Runtime(
            name="reference",
            called="the reference evaluator",
            library="onnx",
            packages=("onnx",),
            open=_open_reference,
            script=str(_SCRIPTS / "reference.py"),
        ),
        _of_python("openvino", "OpenVINO", functions=False),  # 2026.4: no conversion rule found for the calls
        _of_python("tract", "tract", functions=False),  # 0.23: Unimplemented
        _of_python("iree", "IREE", "iree-base-compiler", "iree-base-runtime", functions=False),  # 3.13: no lowering
        _of_node("onnxruntime-node", "ONNX Runtime for Node"),
        _of_node("onnxruntime-web", "ONNX Runtime Web"),
        _of_node("onnxruntime-browser", "ONNX Runtime in Chromium", "onnxruntime-web", "onnxruntime_browser.cjs"),
    )
}
"""The shipped ones by kind."""


def kinds() -> tuple[str, ...]:
    """Returns every `kind` that a config may name; no plug-in is imported."""
    return tuple(dict.fromkeys((*RUNTIMES, *(point.name for point in plugins()))))


def runtime(kind: str) -> Runtime:
    """Returns the runtime of a kind.

    Raises:
        UsageError: there is none, or a plug-in's is none; one sentence that names its package.
    """
    points = [point for point in plugins() if point.name == kind]
    owners = [_owner(point) for point in points] + (["batch_export"] if kind in RUNTIMES else [])
    if len(owners) > 1:
        raise UsageError(
            f"The runtime {kind!r} is brought by {' and by '.join(owners)}. Next step: uninstall all but one"
        )
    if kind in RUNTIMES:
        return RUNTIMES[kind]
    if not points:
        raise UsageError(f"No runtime is called {kind!r}; known: {', '.join(kinds())}{did_you_mean(kind, kinds())}")
    try:
        brought = points[0].load()
    except Exception as error:
        raise UsageError(
            f"The runtime {kind!r} of the package {owners[0]} cannot be imported: {type(error).__name__}: "
            f"{error_line(error)}. Next step: reinstall {owners[0]}, or uninstall it"
        ) from error
    if not isinstance(brought, Runtime) or brought.name != kind:
        what = f"a Runtime named {brought.name!r}" if isinstance(brought, Runtime) else f"a {type(brought).__name__}"
        raise UsageError(
            f"The entry point {kind!r} ({GROUP}) of the package {owners[0]} is {what}; it must be a "
            f"batch_export.runtime.kinds.Runtime named {kind!r}"
        )
    return brought


@cache
def plugins() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Returns the entry points of installed packages; nothing of theirs is imported."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def _owner(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
