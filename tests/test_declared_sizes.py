"""judge/declared_sizes.py: a size that a file declares for an output is one that the model keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sweeping import cells, model

from batch_export.action import Action, ActionResult
from batch_export.judge.declared_sizes import wrongly_fixed
from batch_export.judge.verdict import judge
from batch_export.numbers.facts import OutputFacts
from batch_export.plan.walk import Chain, Ending
from batch_export.record import RunFacts
from batch_export.runner.assemble import assemble


def ran(batch: int, actual: int | None = None, variant: str = "") -> RunFacts:
    shapes = ((batch, 8), (batch if actual is None else actual, 8))
    return RunFacts({"batch": batch}, (OutputFacts("y", "float32", "float32", *shapes, max_abs=0.0),), variant=variant)


RUNS = [ran(2), ran(1), ran(5), ran(2, variant="zeros")]


def described(*shape: int | str) -> list[dict[str, Any]]:
    return [{"name": "y", "dtype": "float32", "shape": shape}]


def test_a_fixed_size_that_eager_does_not_keep_is_a_static_axis() -> None:
    (finding,) = wrongly_fixed(described(2, 8), RUNS)
    assert (finding.stage, finding.error_class) == ("dynamic", "StaticAxis")
    assert finding.message == (
        "dimension 0 of output 'y' is fixed at 2, and eager's is 1 at batch=1. Next step: declare the axis by a name, "
        "or without a size"
    )


@pytest.mark.parametrize(
    ("outputs", "runs"),
    [
        (described("batch", 8), RUNS),  # what really is constant may be declared so
        (described("?", "?"), RUNS),  # no size, no promise
        (described(-1, 8), RUNS),
        ([{"name": "y", "dtype": "float32", "shape": None}], RUNS),
        (described(2, 8), [ran(2), ran(2, variant="zeros")]),  # a static setting is run at no other size
        (described(2, 8), [ran(2), ran(5, actual=2)]),  # wrong values: the comparison says so
        (described(2, 8), [ran(2), RunFacts({"batch": 5}, rejected="ValueError: two rows only")]),
        ([{"name": "added", "dtype": "float32", "shape": (2, 8)}], RUNS),
    ],
)
def test_other_declarations_are_no_finding(outputs: list[dict[str, Any]], runs: list[RunFacts]) -> None:
    assert list(wrongly_fixed(outputs, runs)) == []


def test_a_cell_whose_file_declares_what_it_does_not_keep_fails() -> None:
    (cell,) = cells([model("declared")], opsets=(20,), dynamic=("full",))
    steps: list[tuple[Action, ActionResult]] = []
    for mnemonic, facts in {
        "Check": {"findings": [], "outputs": described(2, 8)},
        "Run": {"runs": msgspec.to_builtins(RUNS)},
    }.items():
        action = Action(mnemonic, ())
        steps.append((action, ActionResult(mnemonic, action.key, facts)))
    view: Any = SimpleNamespace(origin=lambda key: "ran", tries=lambda key: (), attempts={})
    store: Any = None
    record = assemble(cell, Chain(steps, ending=Ending()), view, store, "")
    assert [finding.error_class for finding in record.findings] == ["StaticAxis"]
    judged = judge(record, cell.model, {}, ())
    assert (judged.verdict, judged.stage, judged.error_class) == ("fail", "dynamic", "StaticAxis")
