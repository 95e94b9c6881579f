"""The command line: verbs, and the sweep when there is no verb. Arguments go in, an exit code comes out.

0 all as expected, 1 unexpected results, 2 usage or configuration, 3 the run could not finish, 130 interrupted. torch is
never imported here: everything that needs it runs in children of the runner.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from batch_export import __version__, sweeping
from batch_export.composition import Composed, compose_and_call
from batch_export.config import run_spec
from batch_export.config_schema import nearest
from batch_export.errors import BatchExportError, UsageError
from batch_export.matrix import Installed, PlannedCell, expand
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.running import run_planned
from batch_export.spec import ProviderSpec, RunSpec

VERBS = (
    *("plan", "resume", "report", "compare", "baseline", "history", "expect", "export"),
    *("cache", "explain", "doctor", "bisect", "repro"),
)
_OWN_FILES = tuple(verb for verb in VERBS if verb != "plan")
"""Verbs in `verbs/`, each in a module of its name."""
EXIT_INTERRUPTED = 130
_BUILT_IN = frozenset({"CPUExecutionProvider"})
"""What every build of onnxruntime has."""


def main(argv: Sequence[str]) -> int:
    """Runs one command line; `argv[0]` is the program, as in `sys.argv`."""
    with _noting_interrupt() as interrupted:
        try:
            return _dispatch(argv[0], list(argv[1:]))
        except BatchExportError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # the reader of our output went away, e.g. `plan | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception:
            # Ctrl-C in the middle of an import comes out as an ImportError: extension modules raise what they like.
            if not interrupted.is_set():
                traceback.print_exc()
                print("error: batch_export itself failed; the traceback above says where", file=sys.stderr)
                return 3
    print("interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


@contextmanager
def _noting_interrupt() -> Iterator[threading.Event]:
    """Remembers that Ctrl-C came, whatever becomes of the KeyboardInterrupt on its way up."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _dispatch(program: str, arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"batch_export {__version__}")
        return 0
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if not word or "=" in word or word[0] in "-+~":
        return compose_and_call(
            lambda composed: sweep_composed(composed, _command(program, arguments)), arguments, leave_no_trace=False
        )
    if word == "plan":
        return compose_and_call(_plan, rest, leave_no_trace=True)
    if word in _OWN_FILES:
        verb = importlib.import_module(f"batch_export.verbs.{word}")  # lazy: only the one that is asked for
        return int(verb.run(rest))
    near = nearest(word, VERBS, 1)
    hint = f"did you mean {near[0]}?" if near else f"verbs: {', '.join(VERBS)}"
    raise UsageError(f"Unknown verb {word!r} ({hint}); `--help` shows what there is")


def sweep_composed(composed: Composed, command: str, *, quiet: bool = False) -> int:
    """Runs the sweep that the configuration describes; `quiet` leaves out progress and table."""
    folder, outputs = composed.run_folder, Path(composed.config.output.path).expanduser()
    try:
        spec, cells = planned_cells(composed)
        base = sweeping.baseline_for(spec, outputs, cells)
        files.require_writable(Path(spec.store_path), "store.path")
        files.require_writable(outputs, "output.path")  # hydra.run.dir may put the run's folder anywhere else
        files.require_writable(folder, "output.path")
    except BaseException:  # Ctrl-C included
        _forget(folder)
        raise
    files.write_run(folder, spec, cells, command)
    files.point_latest(outputs, folder)
    models = composed.groups.names("model")
    return run_planned(folder, outputs, spec, cells, command, base, models, quiet=quiet)


def _plan(composed: Composed) -> int:
    _, cells = planned_cells(composed)
    for item in cells:
        print(f"{item.cell.name}  skip: {item.skip}" if item.skip else item.cell.name)
    running = [item for item in cells if not item.skip]
    units = {(item.cell.model, item.cell.dynamic, item.cell.exporter) for item in running}
    models = {unit[0] for unit in units}
    print(
        f"{counted(len(cells), 'cell')}: {len(running)} would run ({counted(len(models), 'model')}, "
        f"{counted(len(units), 'capture')}), {len(cells) - len(running)} skipped"
    )
    for reason, count in Counter(item.skip for item in cells if item.skip).most_common():
        print(f"  {count} skipped: {reason}")
    return 0


def installed(providers: Iterable[ProviderSpec]) -> Installed:
    """What this environment has of what these providers need; libraries are only looked for."""
    needed = {provider.execution_provider for provider in providers if provider.execution_provider}
    if needed <= _BUILT_IN and _has_library("onnxruntime"):
        return Installed(_BUILT_IN, _has_library)
    import onnxruntime  # lazy: it imports numpy, and a sweep on the CPU alone that finds all in the store needs neither

    return Installed(frozenset(onnxruntime.get_available_providers()), _has_library)


@cache
def _has_library(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def planned_cells(composed: Composed) -> tuple[RunSpec, tuple[PlannedCell, ...]]:
    """The run that a configuration describes, and its cells as this environment can run them."""
    spec = run_spec(composed.config, composed.groups, output_path=composed.run_folder, overrides=composed.overrides)
    return spec, expand(spec.matrix, installed(spec.matrix.providers))


def _command(program: str, arguments: Sequence[str]) -> str:
    """The command line as it can be typed again."""
    if Path(program).name == "__main__.py":
        python = "python" if shutil.which("python") == sys.executable else sys.executable
        start = [python, "-m", "batch_export"]
    else:
        start = [Path(program).name if shutil.which(Path(program).name) else program]
    return shlex.join([*start, *arguments])


def _forget(folder: Path) -> None:
    """Removes a run's folder in which nothing but Hydra's own files lie: the run never began."""
    try:
        if {entry.name for entry in folder.iterdir()} <= {".hydra", "batch_export.log"}:
            shutil.rmtree(folder)
            folder.parent.rmdir()
    except OSError:
        return  # the day's folder holds other runs, or was never made
