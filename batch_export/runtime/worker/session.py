"""Sessions in a process of their own: a file's path and feeds go over, outputs come back.

A provider's spec arrives; a session with the members of `kinds.Session` leaves, whose prepared runs time themselves
over there. What the runtime refuses is a `LoadError`, a runtime that does not come up a `ProviderUnavailableError`, and
one whose process ends at a file a `WorkerEndedError`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from batch_export.digest import digest_file, digest_value
from batch_export.environments import shelf
from batch_export.environments.making import EnvironmentUnavailableError, environment_for
from batch_export.files import whole_file
from batch_export.numbers.values import Fed
from batch_export.runtime.crossing import received, sent
from batch_export.runtime.failures import LoadError, OptionsRejectedError, ProviderUnavailableError
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.served import serve
from batch_export.runtime.worker.failures import WorkerEndedError, WorkerRefusedError
from batch_export.runtime.worker.process import WorkerProcess
from batch_export.words import error_line

START_LIMIT_S = 60.0
"""How long a runtime may take to be imported and set up."""

_ALONE = ("-I", "-u")
"""Python without what the caller's environment would add, and without holding back what it prints."""
_AS_HERE = ("-P", "-u")
"""Python with the packages of this process (those of PYTHONPATH too), but not the folder of the script that it runs."""
_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP")


class Described(msgspec.Struct, frozen=True):
    """What a runtime says of itself: its version, and where it can run files."""

    version: str = ""
    execution_providers: tuple[str, ...] = ()


def started(
    provider: ProviderSpec, runtime: Runtime, threads: int, *, echo: bool = True
) -> tuple[WorkerProcess, Described]:
    """Starts a runtime in its environment, which is made if need be; `echo` as `WorkerProcess` has it.

    Raises:
        ProviderUnavailableError: it is not there, does not come up, or has no such execution provider.
        OptionsRejectedError: it does not take its options.
    """
    where = f"provider {provider.name}"
    worker = _launched(provider, runtime, where, echo=echo)
    settings = provider.settings(threads, runtime.library)
    try:
        worker.ask({"do": "load"}, limit_s=START_LIMIT_S)
        described = _described(worker, settings, where, runtime)
    except WorkerRefusedError as error:
        worker.close()
        said = f"{runtime.called} cannot be imported: {error.error_class}: {error_line(error)}"
        raise ProviderUnavailableError(f"{where}: {error_line(error) if _is_absence(error) else said}") from error
    except WorkerEndedError as error:
        raise ProviderUnavailableError(f"{where}: {error}") from error
    except BaseException:
        worker.close()
        raise
    if provider.execution_provider and provider.execution_provider not in described.execution_providers:
        worker.close()
        there = ", ".join(described.execution_providers) or "none"
        raise ProviderUnavailableError(
            f"{where}: {runtime.called} {described.version} has no {provider.execution_provider}; there is {there}"
        )
    return worker, described


def probed(provider: ProviderSpec, runtime: Runtime) -> Described:
    """Returns what a runtime says of itself, having started it with the provider's options once.

    What an environment answered is kept with it; failures are not.

    Raises:
        ProviderUnavailableError, OptionsRejectedError: as `started`.
    """
    environment = _environment(provider, runtime, f"provider {provider.name}") if provider.env else None
    settings = provider.settings(1, runtime.library)
    asked = [provider.kind, settings, provider.variables, digest_file(Path(runtime.served))]
    key = digest_value([*asked, environment.resolved if environment else ""])
    known: dict[str, Described] = {}
    if environment is not None:
        try:
            known = msgspec.json.decode((environment.folder / shelf.PROBES).read_bytes(), type=dict[str, Described])
        except (OSError, msgspec.MsgspecError):
            known = {}
        if key in known:
            return known[key]
    worker, described = started(provider, runtime, 1, echo=False)
    worker.close()
    if environment is not None:
        with whole_file(environment.folder / shelf.PROBES) as stream:
            stream.write(msgspec.json.encode({**known, key: described}))
    return described


class WorkerSession:
    """A file opened in a process of its own; see `kinds.Session` for the members."""

    def __init__(self, path: Path, provider: ProviderSpec, runtime: Runtime, threads: int) -> None:
        self._worker, _ = started(provider, runtime, threads)
        try:
            told, _ = self._worker.ask({"do": "open", "path": str(path.absolute())})
        except WorkerRefusedError as error:
            self._worker.close()
            if _is_absence(error):
                raise ProviderUnavailableError(f"provider {provider.name}: {error_line(error)}") from error
            raise LoadError(f"{runtime.called} cannot load {path.name}: {error}") from error
        self.input_names: tuple[str, ...] = tuple(told["input_names"])
        names = told["output_names"]
        self.output_names: tuple[str, ...] = _output_names(path) if names is None else tuple(names)
        self.input_shapes: tuple[tuple[int | None, ...] | None, ...] = tuple(
            None if shape is None else tuple(shape) for shape in told["input_shapes"]
        )
        self.placement: dict[str, int] = told["placement"]
        self.load_seconds = float(told["load_seconds"])

    def prepare(self, feeds: Mapping[str, Fed]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the file on these feeds over there; its outputs stay there."""
        self._worker.ask({"do": "feed", "names": list(feeds)}, [sent(value) for value in feeds.values()])
        return PreparedRun(self._worker)

    def run(self, feeds: Mapping[str, Fed]) -> list[Fed]:
        """Runs the file and returns its outputs in order."""
        self.prepare(feeds)
        _, outputs = self._worker.ask({"do": "run"})
        return [received(kind, content) for kind, content in outputs]

    def close(self) -> None:
        """Ends the process."""
        self._worker.close()


class PreparedRun:
    """Runs a file whose inputs are over there already, and says how long that took over there."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    def __call__(self) -> Sequence[Any]:
        self.timed()
        return ()

    def timed(self) -> tuple[int, int]:
        """Runs the file once; returns nanoseconds of wall and of CPU time, without what asking for it takes."""
        told, _ = self._worker.ask({"do": "time"})
        return int(told["wall_ns"]), int(told["cpu_ns"])


def _described(worker: WorkerProcess, settings: Mapping[str, Any], where: str, runtime: Runtime) -> Described:
    try:
        told, _ = worker.ask({"do": "connect", "settings": settings}, limit_s=START_LIMIT_S)
    except WorkerRefusedError as error:
        if _is_absence(error):
            raise
        raise OptionsRejectedError(f"{where}: {runtime.called} rejects its options: {error_line(error)}") from error
    return Described(str(told["version"]), tuple(map(str, told["execution_providers"])))


def _launched(provider: ProviderSpec, runtime: Runtime, where: str, *, echo: bool) -> WorkerProcess:
    if not runtime.served:
        raise ProviderUnavailableError(
            f"{where}: {runtime.called} cannot run in an environment of its own. Next step: remove 'env'"
        )
    if not provider.env and not runtime.installed:
        raise ProviderUnavailableError(
            f"{where}: {runtime.called} needs the package {runtime.library}, which is not installed"
        )
    program, variables = interpreter(provider, runtime)
    served = Path(serve.__file__).with_suffix(".cjs" if runtime.language == "node" else ".py")

    def command(read: int, write: int) -> list[str]:
        return [*program, str(served), str(read), str(write), runtime.served]

    try:
        return WorkerProcess(runtime.called, command, variables, echo=echo)
    except WorkerEndedError as error:
        raise ProviderUnavailableError(f"{where}: {error}") from error


def interpreter(provider: ProviderSpec, runtime: Runtime) -> tuple[list[str], dict[str, str]]:
    """Returns the command that runs a script with a runtime's packages, and the variables it runs with.

    The provider's environment is made if need be.

    Raises:
        ProviderUnavailableError: it cannot be.
    """
    if not provider.env:
        return [sys.executable, *_AS_HERE], {**os.environ, **provider.variables}
    inherited = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    environment = _environment(provider, runtime, f"provider {provider.name}")
    command = [str(environment.program), *_ALONE]
    if runtime.language == "node":
        command = [shutil.which("node") or "node"]
        inherited["NODE_PATH"] = str(environment.folder / shelf.NODE_MODULES)
    return command, {**inherited, **provider.variables}


def _environment(provider: ProviderSpec, runtime: Runtime, where: str) -> shelf.Environment:
    try:
        return environment_for(provider.env, runtime.language)
    except EnvironmentUnavailableError as error:
        raise ProviderUnavailableError(f"{where}: {error}") from error


def _output_names(path: Path) -> tuple[str, ...]:
    import onnx  # lazy: only for runtimes that do not tell

    return tuple(value.name for value in onnx.load(path, load_external_data=False).graph.output)


def _is_absence(error: WorkerRefusedError) -> bool:
    """Whether the runtime said that the machine lacks something."""
    return error.error_class == serve.UNAVAILABLE
