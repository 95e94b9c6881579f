"""The parent's side of `new` and `try`: asks a child what a model takes and gives.

A request arrives, the answer leaves. torch is never imported here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from batch_export.errors import RunError, UsageError
from batch_export.runner.launcher import log_tail
from batch_export.sources.closure import local_roots
from batch_export.sources.search_path import path_of_children
from batch_export.stages.probe_request import Probed, ProbeRequest

_ROOM = "batch_export.stages.probe.answer"


def probe(request: ProbeRequest, timeout_s: float) -> Probed:
    """Runs the model in a child.

    Raises:
        UsageError: there is no such model, or it does not run; one sentence.
        RunError: the child died, or took too long.
    """
    path = path_of_children([*map(str, local_roots())])
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        asked, answered, log = (Path(folder) / name for name in ("request.msgpack", "answer.json", "child.log"))
        asked.write_bytes(msgspec.msgpack.encode(request))
        with log.open("wb") as stream:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", _ROOM, str(asked), str(answered)],
                    env={**os.environ, **settings, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise RunError(
                    f"running {request.target or request.path} at small inputs took more than {timeout_s:g} s. "
                    "Next step: describe smaller ones with --input, or give more time with --timeout"
                ) from error
        if done.returncode or not answered.is_file():
            raise RunError(
                f"the process that ran {request.target or request.path} ended with exit code {done.returncode}. "
                f"Its last lines:\n{log_tail(log)}"
            )
        found = msgspec.json.decode(answered.read_bytes(), type=Probed)
    if found.refusal:
        raise UsageError(found.refusal)
    return found
