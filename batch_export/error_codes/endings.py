"""BE5xx: actions that did not finish by themselves, and results that nobody can use."""

from __future__ import annotations

from batch_export.error_codes.explanation import Explanation, Kind

ENDINGS = (
    Explanation(
        "BE501",
        "Timeout",
        "An action took longer than its limit and was ended",
        "The model, a library or the exporter is slow or waits for ever. The stack at that moment is in its log.",
        Kind.MODEL,
        """
import time


def build():
    time.sleep(3600)
""",
        "Read the stack. Raise runner.timeout_s, or timeout_s in the model's config, if the work is worth the time.",
        config="timeout_s: 2",
    ),
    Explanation(
        "BE502",
        "MemoryLimit",
        "An action used more private memory than its limit and was ended",
        "The limit protects the machine and the cells beside this one.",
        Kind.MODEL,
        """
import time


def build():
    hoard = bytearray(b"x" * (1 << 30))
    time.sleep(3600)
    return hoard
""",
        "Raise runner.memory_gb, or memory_gb in the model's config, if the machine has it.",
        config="memory_gb: 0.5",
    ),
    Explanation(
        "BE503",
        "OutputLimit",
        "An action printed more than its log may hold and was ended",
        "A loop that prints would fill the disk.",
        Kind.PYTHON,
        """
import pathlib
from batch_export.runner.supervisor import End, Limits, blame

found = blame(End("log"), Limits(60.0, 1 << 30), pathlib.Path("unit.log")).error_class
""",
        "Make the model print less.",
    ),
    Explanation(
        "BE504",
        "ProcessExit",
        "The process of an action ended without a result",
        "Something called os._exit, or a library ended the process. sys.exit is caught and is a failure of the model.",
        Kind.MODEL,
        """
import os


def build():
    os._exit(7)
""",
        "The cell's log has the last lines that were printed.",
    ),
    Explanation(
        "BE505",
        "SIGNAL",
        "The process of an action was ended by a signal",
        "SIGSEGV and SIGABRT are faults in compiled code of a library; SIGKILL without a limit of ours is often the "
        "kernel, out of memory. Records name the signal.",
        Kind.MODEL,
        """
import os


def build():
    os.kill(os.getpid(), 11)
""",
        "The log has the stack at a fault. `batch-export repro CELL` cuts the model down to what crashes.",
    ),
    Explanation(
        "BE506",
        "WorkerEndedError",
        "A runtime that runs in a process of its own ended before it had answered",
        "It crashed at the file, which is then to blame, or its answer was none.",
        Kind.PYTHON,
        """
import os, sys
from batch_export.runtime.worker.process import WorkerProcess

WorkerProcess("mine", lambda read, write: [sys.executable, "-c", ""], os.environ).ask({"do": "load"})
""",
        "Read its last words in the sentence and the cell's log. The file is in the store, for its makers.",
    ),
    Explanation(
        "BE511",
        "Unsettled",
        "A child ended without a result for this cell",
        "It went between two actions, or the worker of a cluster did. Never served from the store.",
        Kind.WORDS,
        """
The child said that its order was done, and the store has no result of the cell's next action: somebody else removed it
in between, or the worker of a cluster was stopped.
""",
        "Run again, or `batch-export resume`; look at the worker's log if it comes back.",
    ),
    Explanation(
        "BE512",
        "InvalidFacts",
        "A stage returned facts that a record does not hold",
        "An own stage or plug-in returned something else than plain data.",
        Kind.WORDS,
        """
A stage of one's own returns {"nodes": "many"} where a record holds a number.
""",
        "Mend the stage; the sentence names the field.",
    ),
    Explanation(
        "BE513",
        "OracleMemory",
        "The model in float64 does not fit into the memory limit",
        "Only the excuse by float64 is missing then; the cell is judged without it.",
        Kind.PYTHON,
        """
import pathlib, types, torch
from batch_export.stages.oracle import execute

huge = torch.nn.Linear(1 << 20, 1 << 20, device="meta")
found = execute(types.SimpleNamespace(oracle=None, module=huge), pathlib.Path(), 0).failure.error_class
""",
        "Raise memory_gb, or verify.oracle=never for that model.",
    ),
)
"""By rising code."""
