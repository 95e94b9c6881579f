"""The child that describes models: names come in by standard input, one a line, and descriptions go out as JSON lines.

`python -m batch_export.collections.describe_child MODULE:FUNCTION PREPARE LIMIT_S`. Each name has a process of its own
where processes can be forked, so that a crash or a hang costs one name, and is not taken for a property of it. What
packages print goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from batch_export.words import class_and_line

_PATIENCE = 5
"""How much longer than its processor time a description may take: other processes want the machine, too."""

Describe = Callable[[str], Mapping[str, Any]]


def main(arguments: list[str]) -> None:
    """Answers each line of standard input with one line of standard output: `{"config": ...}` or `{"reason": ...}`."""
    target, prepare, limit = arguments[0], arguments[1], float(arguments[2])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if prepare:
        _found(prepare)()
    describe: Describe = _found(target)
    for line in sys.stdin:
        name = line.rstrip("\n")
        forks = hasattr(os, "fork")
        answer = _apart(describe, name, limit) if forks else json.dumps(_answer(describe, name))
        answers.write(answer + "\n")
        answers.flush()


def _found(dotted: str) -> Any:
    module, _, function = dotted.partition(":")
    return getattr(importlib.import_module(module), function)


def _answer(describe: Describe, name: str) -> dict[str, Any]:
    try:
        return {"config": dict(describe(name))}
    except BaseException as error:  # whatever a package raises, even on its way out, is this name's reason
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"reason": class_and_line(error)}


def _apart(describe: Describe, name: str, limit: float) -> str:
    """The answer of a process that is forked for one name."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        _limit_processor(limit)
        with os.fdopen(writes, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(_answer(describe, name)))
        os._exit(0)
    os.close(writes)
    parts: list[bytes] = []
    ends = time.monotonic() + _PATIENCE * limit
    try:
        while (left := ends - time.monotonic()) > 0 and select.select([reads], [], [], left)[0]:
            part = os.read(reads, 1 << 16)
            if not part:
                break
            parts.append(part)
        else:
            return _passing(f"describing it took longer than {_PATIENCE * limit:g} s")
    finally:
        os.close(reads)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not parts and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return _passing(f"describing it took more than {limit:g} s of processor time")
    if not parts:
        return _passing(f"describing it ended its process (status {status})")
    return b"".join(parts).decode()


def _limit_processor(seconds: float) -> None:
    """Has this process ended after so many seconds of its own, however busy the machine is."""
    try:
        import resource  # lazy: Windows has none
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))


def _passing(reason: str) -> str:
    """A reason that says something about this machine and this moment, too: it is not kept."""
    return json.dumps({"reason": reason, "passing": True})


if __name__ == "__main__":
    main(sys.argv[1:])
