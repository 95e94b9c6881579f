"""`doctor [OVERRIDES]`: looks at everything that a sweep needs, and says what to do about what is missing.

Overrides as for a sweep arrive; one line per check leaves. The store and the outputs are opened, a child is started;
no model is exported. Exit code 1 when a check fails; warnings are not failures.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batch_export.cli.arguments import VerbParser, add_config_dirs, config_words
from batch_export.cli.cache import size_text
from batch_export.config.compose import Composed, compose_and_call
from batch_export.environments import shelf
from batch_export.environments.making import wanted_for
from batch_export.errors import BatchExportError
from batch_export.nouns import counted
from batch_export.plan.matrix import PlannedCell
from batch_export.report import run_folder as files
from batch_export.sources.toolchain import DISTRIBUTIONS, distribution_version, toolchain_for
from batch_export.spans import seconds_of
from batch_export.spec import RunSpec
from batch_export.store import open_store
from batch_export.sweeps.planned import planned_cells
from batch_export.version import __version__

_LITTLE_DISK = 5 << 30
_LEAST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: `ok`, `warn` or `fail`, in which words, and what to do."""

    state: Literal["ok", "warn", "fail"]
    what: str
    step: str = ""


def run(arguments: list[str]) -> int:
    """Checks, prints, and returns 1 when something a sweep needs is missing."""
    parser = VerbParser("doctor", "Checks what sweeps need: packages, providers, disk, store, child processes.")
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments)
    return compose_and_call(_examine, [*overrides, *config_words(asked)], leave_no_trace=True)


def _examine(composed: Composed) -> int:

    spec, cells = planned_cells(composed)
    failed = False
    absent = {item.skip for item in cells if "not installed" in item.skip}
    for check in (
        _interpreter,
        _packages,
        lambda: _providers(),
        lambda: (Finding("warn", text, "install it, or leave it out of the matrix") for text in sorted(absent)),
        lambda: _layers(cells),
        lambda: _folders(spec, Path(composed.config.output.path).expanduser()),
        lambda: _store(spec),
        lambda: _remote(spec),
        _isolation,
        lambda: _children(spec),
        lambda: _staying(spec),
    ):
        for finding in _guarded(check):
            failed |= finding.state == "fail"
            print(f"{finding.state:<5} {finding.what}")
            if finding.step:
                print(f"      Next step: {finding.step}")
    return 1 if failed else 0


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except BatchExportError as error:
        sentence, _, step = str(error).partition(" Next step: ")
        yield Finding("fail", sentence, step)
    except Exception as error:  # a check that breaks is a finding too
        yield Finding("fail", f"a check broke: {type(error).__name__}: {error}")


def _interpreter() -> Iterator[Finding]:
    text = f"batch_export {__version__}, python {platform.python_version()} on {platform.platform()}"
    if sys.version_info < _LEAST_PYTHON:
        yield Finding("fail", text, "use Python 3.11 or later")
    elif sys.platform != "linux":
        yield Finding("warn", text, "only Linux is tested; elsewhere children start slowly and are isolated less")
    else:
        yield Finding("ok", text)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = f"{cores} cores, {size_text(memory)} of memory"
    if memory < 4 << 30:
        yield Finding("warn", text, "leave large models out, and set runner.n_jobs=1")
    else:
        yield Finding("ok", text)


def _packages() -> Iterator[Finding]:
    versions = {name: distribution_version(name) for name in DISTRIBUTIONS}
    missing = [name for name, version in versions.items() if version == "absent"]
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if missing:
        step = f"pip install -c constraints.txt -e '.[zoo]' ({', '.join(missing)} missing)"
        yield Finding("fail", text, step)
    else:
        yield Finding("ok", text)


def _providers() -> Iterator[Finding]:
    import onnxruntime  # lazy: 0.4 s

    available = onnxruntime.get_available_providers()
    state: Literal["ok", "fail"] = "ok" if "CPUExecutionProvider" in available else "fail"
    yield Finding(
        state, f"execution providers: {', '.join(available)}", "" if state == "ok" else "reinstall onnxruntime"
    )


def _layers(cells: Sequence[PlannedCell]) -> Iterator[Finding]:
    """The environments of models and exporters of the matrix."""
    for requirements in sorted({item.environment for item in cells if not item.skip} - {()}):
        there = shelf.found(wanted_for(requirements, layered=True))
        text = f"environment of {', '.join(requirements)}"
        if there is None:
            yield Finding("ok", f"{text}: not made yet; the sweep makes it")
        else:
            yield Finding("ok", f"{text}: {there.name}, over this one ({', '.join(there.content) or 'nothing more'})")


def _folders(spec: RunSpec, outputs: Path) -> Iterator[Finding]:
    files.require_writable(outputs, "output.path")
    files.require_writable(Path(spec.store_path), "store.path")
    for key, folder in (("output.path", outputs), ("store.path", Path(spec.store_path))):
        usage = shutil.disk_usage(folder)
        text = f"{key} {folder}: writable, {size_text(usage.free)} free of {size_text(usage.total)}"
        if usage.free < _LITTLE_DISK:
            yield Finding("warn", text, "free space, or `batch-export cache gc --max-size 10G`")
        else:
            yield Finding("ok", text)


def _store(spec: RunSpec) -> Iterator[Finding]:
    store = open_store(Path(spec.store_path))
    info = store.info()
    with store.single_flight("0" * 64):
        pass
    text = f"store: {sum(info.actions.values())} action results, {size_text(info.bytes)}, locks work"
    if info.quarantined:
        yield Finding(
            "warn",
            f"{text}; {info.quarantined} damaged files in quarantine",
            "`batch-export cache verify` reads everything; damage that comes back means a failing disk",
        )
    else:
        yield Finding("ok", text)


def _remote(spec: RunSpec) -> Iterator[Finding]:
    if not spec.store.remote:
        return
    said: list[str] = []
    store = open_store(Path(spec.store_path), (), spec.store, warn=said.append)
    assert store.remote is not None
    name = f"doctor/{os.getpid()}-{time.time_ns()}"
    store.remote.write(name, b"doctor")
    if store.remote.read(name) == b"doctor":
        yield Finding("ok", f"remote store {spec.store.remote}: writes and reads")
    else:
        step = "check the address, the network, and the credentials where the storage's library looks for them"
        yield Finding("fail", said[0].partition(";")[0] if said else "the remote store lost what was written", step)


def _isolation() -> Iterator[Finding]:
    if not Path("/proc/self/smaps_rollup").exists():
        yield Finding("warn", "this system does not tell private memory: runner.memory_gb is not enforced", "use Linux")
    elif not Path("/proc/thread-self/children").exists():
        step = "a kernel with CONFIG_PROC_CHILDREN; until then processes that leave their group may be left behind"
        yield Finding("warn", "this kernel does not list the children of a process", step)
    else:
        yield Finding("ok", "memory limits and the ending of whole process trees work here")


def _children(spec: RunSpec) -> Iterator[Finding]:
    from batch_export.runner.launcher import Launcher, can_fork  # lazy: the last check only
    from batch_export.runner.preload import entries_for

    if not can_fork():
        yield Finding("warn", "children are fresh processes here: each one costs seconds", "use Linux for large sweeps")
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder), entries_for([], core_exporter=True), [os.getcwd()])
        try:
            launcher.start()
        finally:
            launcher.close()
    yield Finding("ok", f"children: the server that they are forked from was ready in {time.monotonic() - began:.1f} s")


def _staying(spec: RunSpec) -> Iterator[Finding]:
    from batch_export.runner.launcher import can_fork, environment_of_children  # lazy: the last check only
    from batch_export.runner.staying.circumstances import PRELOADED
    from batch_export.runner.staying.client import in_short, question_of, status

    if not can_fork():
        return
    toolchain = toolchain_for([], [])
    idle_s = seconds_of(spec.runner.keep_alive)
    found = status(question_of(environment_of_children(toolchain.roots), [], toolchain, idle_s, session=False))
    if found is None:
        yield Finding(
            "ok", f"no server stays between commands (runner.keep_alive is {spec.runner.keep_alive or 'off'})"
        )
        return
    text = f"server that stays between commands: process {found.pid}"
    if found.answer is None:
        yield Finding("warn", f"{text}, which is starting or does not answer", "`batch-export stop` ends it")
        return
    differs = [name for name in found.answer.differs if name != PRELOADED]  # what a run needs, not this verb
    text += f", {counted(found.answer.sessions, 'run')} at work, ends after {found.answer.idle_s:g} s without one"
    if differs:
        yield Finding("ok", f"{text}; the next run starts another one, as this has changed: {in_short(differs)}")
    else:
        yield Finding("ok", text)
