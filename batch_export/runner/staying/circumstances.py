"""What processes take over from the one that starts them, and what a server that stays therefore has to share with a
command that it is to serve: variables, the current folder, limits, rights, the interpreter, versions and sources.

Named texts leave. Nothing is changed, and torch is not imported.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from batch_export.digest import digest_value
from batch_export.sources.closure import PACKAGE
from batch_export.sources.toolchain import DISTRIBUTIONS, Toolchain

_OF_THE_COMMAND = frozenset({"_", "SHLVL", "OLDPWD", "COLUMNS", "LINES", "KMP_INIT_AT_FORK"})
"""Variables that children get as the command has them, and that change nothing in what is preloaded: those of the
terminal, and one that joblib sets in a command that has used it.
"""
_OF_THE_PROCESS = frozenset(
    {
        *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"),
        *("Umask", "SigIgn", "SigBlk", "Cpus_allowed", "Mems_allowed"),
    }
)
PRELOADED = "what is preloaded"
_VARIABLE = "environment variable "


def circumstances(environment: Mapping[str, str], preload: Sequence[str], toolchain: Toolchain) -> dict[str, str]:
    """Returns what has to be equal, by name.

    Args:
        environment: the variables that children are to have.
        preload: what they have imported from the start.
        toolchain: the run's; of its versions those count that all runs have in common.
    """
    found = {f"{_VARIABLE}{name}": text for name, text in environment.items() if name not in _OF_THE_COMMAND}
    found |= {f"version of {name}": toolchain.versions.get(name, "") for name in ("python", *DISTRIBUTIONS)}
    found["sources of batch_export"] = f"{PACKAGE} {digest_value(toolchain.own)}"
    found[PRELOADED] = " ".join(preload)
    found["interpreter"] = f"{sys.executable} {sys.prefix} {sys.base_prefix} {sys.version} {sys.flags}"
    found["interpreter's file"] = _stamp(sys.executable)
    found["current folder"] = f"{os.getcwd()} {_stamp('.')}"
    found["where modules are looked for"] = os.pathsep.join(sys.path)
    found["priority"] = f"{os.getpriority(os.PRIO_PROCESS, 0)} {os.sched_getscheduler(0)}"
    return found | dict(_of_the_system())


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns the names of what differs, sorted; never a value, which may be a secret."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _of_the_system() -> Iterator[tuple[str, str]]:
    for line in _text("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name in _OF_THE_PROCESS:
            yield f"the process's {name}", value.strip()
    limits: dict[int, str] = {}
    for name in sorted(dir(resource)):
        if name.startswith("RLIMIT_"):
            limits.setdefault(getattr(resource, name), name)  # some have two
    for number, name in limits.items():
        yield f"limit {name}", str(resource.getrlimit(number))
    for name in ("cgroup", "oom_score_adj", "personality", "timerslack_ns"):
        yield f"the process's {name}", _text(f"/proc/self/{name}")
    for space in sorted(os.listdir("/proc/self/ns")):
        yield f"namespace {space}", os.readlink(f"/proc/self/ns/{space}")
    yield "root folder", _stamp("/")


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _stamp(name: str) -> str:
    """Which file it is; of one that is executed also in which version."""
    status = os.stat(name)
    which = f"{status.st_dev} {status.st_ino}"
    return which if os.path.isdir(name) else f"{which} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
