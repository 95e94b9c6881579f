"""judge/vote.py and report/disagreements.py: who is alone where runtimes disagree about a file."""

from __future__ import annotations

from typing import Any

import pytest

from batch_export.judge.vote import disagreement
from batch_export.numbers.facts import OutputFacts
from batch_export.record import Cell, Outcome, Record, RunFacts
from batch_export.report.disagreements import disagreements, sentences


def record(provider: str, verdict: Outcome = "pass", stage: str = "", model: str = "m", **facts: Any) -> Record:
    return Record(Cell(model, "static", 20, provider, "core"), verdict, stage, **facts)


def wrong(provider: str, value: float, index: int = 0, oracle: tuple[float, float] | None = None) -> Record:
    """A cell whose output is `value` where eager's is 1.0; `oracle`: how far eager and the file are from float64."""
    output = OutputFacts(
        "y",
        "float32",
        "float32",
        (4,),
        (4,),
        max_abs=abs(value - 1.0),
        count=4,
        outside=1,
        worst_index=(index,),
        worst_values=("1.0", repr(value)),
        has_oracle=oracle is not None,
        rounding_hull=((1.0, oracle[0]),) if oracle else (),
        oracle_hull=((1.0, oracle[1]),) if oracle else (),
    )
    return record(provider, "fail", "mismatch", runs=(RunFacts({"n": 4}, (output,)),))


@pytest.mark.parametrize(
    ("records", "alone", "says"),
    [
        ([record("a"), record("b"), wrong("c", 2.0)], ("c",), "c is alone: a, b and eager agree"),
        ([record("a"), wrong("b", 2.0), wrong("c", 3.0)], ("b", "c"), "b and c are alone: a and eager agree"),
        (
            [wrong("a", 2.0), wrong("b", 2.01), wrong("c", 1.99)],
            ("eager",),
            "eager is alone: a, b and c agree with each other",
        ),
        (
            [wrong("a", 2.0), wrong("b", 2.01), wrong("c", 2.0), record("d")],
            ("eager",),
            "eager is alone with d: a, b and c agree with each other",
        ),
        (
            [record("a"), wrong("b", 2.0), wrong("c", 2.0)],
            (),
            "the voices are even: b and c on one side, a and eager on the other",
        ),
        (
            [record("a"), wrong("b", 2.0, oracle=(1.0, 0.1)), wrong("c", 2.0, oracle=(1.0, 0.1))],
            ("eager",),
            "eager is alone: b and c are nearer to float64",
        ),
        (
            [record("a"), wrong("b", 2.0, oracle=(0.1, 1.0)), wrong("c", 2.0, oracle=(0.1, 1.0))],
            ("b", "c"),
            "b and c are alone: eager is nearer to float64",
        ),
        ([record("a"), wrong("b", 2.0), wrong("c", 2.0, index=1)], ("b", "c"), "b and c are alone: a and eager agree"),
        (
            [record("a"), record("b"), record("c", "fail", "load")],
            ("c",),
            "c alone refuses the file, a and b run it",
        ),
        (
            [record("a"), record("b", "xfail", "run"), record("c", "fail", "crash")],
            ("b", "c"),
            "b and c refuse the file, a runs it",
        ),
        (
            [record("a"), record("b"), wrong("c", 2.0), record("d", "fail", "load")],
            ("c",),
            "c is alone: a, b and eager agree; d refuses the file",
        ),
    ],
)
def test_who_is_alone(records: list[Record], alone: tuple[str, ...], says: str) -> None:
    found = disagreement(records)
    assert found is not None
    assert (found.alone, found.says) == (alone, says)
    assert found.file == "m/static/opset20/core"


@pytest.mark.parametrize(
    "records",
    [
        [record("a"), record("b"), record("c", "skip")],
        [wrong("a", 2.0), record("b", "skip")],
        [record("a", "fail", "load"), record("b", "fail", "load")],
        [record("a", "fail", "capture"), record("b", "fail", "capture")],
    ],
)
def test_where_nobody_disagrees_nothing_is_said(records: list[Record]) -> None:
    assert disagreement(records) is None


def test_files_of_which_the_same_is_said_share_a_sentence() -> None:
    records = [
        one
        for model in ("k", "l", "m", "n")
        for one in (record("a", model=model), record("b", "fail" if model != "n" else "pass", "load", model=model))
    ]
    assert sentences(disagreements(records)) == (
        "b alone refuses the file, a runs it (k/static/opset20/core, l/static/opset20/core and 1 more)",
    )
    assert disagreements([one for one in records if one.cell.provider == "a"]) == ()
