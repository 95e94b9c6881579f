"""What one process of the hunt does: seeds come in, records go out; a failing program is shrunk on demand."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
import warnings
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from batch_export.exporter import warm
from hunt import runs, script, sensitivity, shrink, steps
from hunt.cases import cases
from hunt.generate import Hunted, generate
from hunt.judge import OURS, Finding, judge
from hunt.known import declared

OPSETS = range(18, 26)
FURTHER = 3
"""Opsets beside the program's own at which its capture is translated."""
SHRUNK = frozenset({*OURS, "declared", "upstream"})
"""Outcomes with a cause."""


def work(pipe: Connection, stage: Any, quiet: bool = True) -> None:
    """Answers `(seed, reference, known, outcomes to shrink, further opsets)` with a record until the pipe closes."""
    runs.STAGE = stage
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if quiet:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            seed, reference, known, shrinks, opsets = pipe.recv()
            try:
                pipe.send(record(seed, reference, known, shrinks, opsets=opsets))
            except Exception as error:
                pipe.send(
                    {"seed": seed, "outcome": "hunter error", "kind": repr(error)[:300], "detail": "", "seconds": 0}
                )


def warm_all(seeds: range = range(12)) -> None:
    """Fills caches and imports what only some programs need, before processes are forked; no session is opened."""
    warm()
    for seed in seeds:
        hunted = generate(seed)
        made = cases(hunted)
        with contextlib.suppress(Exception):
            runs.export(hunted.program, made[0].values)
            sensitivity.run(hunted.program, made[0].values, runs.eager(hunted.program, made[0].values), runs.collected)


def record(
    seed: int,
    reference: bool = False,
    known: frozenset[str] = frozenset(),
    shrinks: frozenset[str] = SHRUNK,
    seconds: float = 40.0,
    opsets: int = FURTHER,
) -> dict[str, Any]:
    """Generates, judges and, when the program fails in a way not seen often enough, shrinks it."""
    begun = time.process_time()
    hunted = generate(seed)
    made = cases(hunted)
    finding = judge(hunted.program, made, reference=reference, opsets=other_opsets(hunted, opsets))
    program = replace(hunted.program, opset=finding.opset or hunted.program.opset)
    found: dict[str, Any] = {
        "seed": seed,
        "outcome": finding.outcome,
        "kind": finding.kind,
        "detail": finding.detail,
        "files": finding.files,
        "opset": program.opset,
        "operators": list(program.operators),
        "seconds": round(time.process_time() - begun, 3),
    }
    if finding.outcome in shrinks:
        found |= _cause(seed, program, made, finding, known, seconds)
    return found


def other_opsets(hunted: Hunted, count: int) -> tuple[int, ...]:
    """So many other opsets, always the same ones for a seed."""
    others = [opset for opset in OPSETS if opset != hunted.program.opset]
    return tuple(random.Random(f"{hunted.seed} opsets").sample(others, count))


def _cause(
    seed: int, program: Any, made: Any, finding: Finding, known: frozenset[str], seconds: float
) -> dict[str, Any]:
    """The shrunk program, unless one step of it alone is enough to recognise a known cause."""
    begun = time.process_time()
    subject, small = shrink.shrunk(program, made, finding, lambda one, what: name_of(one, what) in known, seconds)
    outcome = small.outcome
    cause = name_of(subject, small)
    judged = (subject.program, subject.cases[0].values, subject.cases[small.case].values)
    if outcome in ("silent", "warned", "zero sign") and declared(small.detail, steps.wrong_steps(*judged)):
        outcome = "declared"
        cause = f"{outcome} | {cause.split(' | ', 1)[1]}"
    return {
        "outcome": outcome,
        "cause": cause,
        "detail": small.detail,
        "steps": len(subject.program.steps),
        "script": None if cause in known else script.script(subject, small, seed),
        "shrink_seconds": round(time.process_time() - begun, 3),
    }


def name_of(subject: shrink.Subject, finding: Finding) -> str:
    """What failures of one cause share: outcome, kind and the operators that are left."""
    return f"{finding.outcome} | {finding.kind} | {' ; '.join(subject.program.operators)}"
