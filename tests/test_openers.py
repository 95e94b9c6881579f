"""Whoever opens a file, Python or not: a model whose file changed runs again, and nothing else does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from openers import OPENERS
from sweeping import STAGES, Listener, by_name, cells, model, sweep

from batch_export.record import Record
from batch_export.spec import ModelSpec

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="only Linux' kernel tells")]

BUILT = {**STAGES, "Reference": "fake_stages.built"}
PRELOADED = ("torch", "safetensors.torch", "pandas", "pyarrow", "onnx", "transformers.models.bert.modeling_bert")


def models(folder: Path) -> list[ModelSpec]:
    # The folder's name in the arguments leads nowhere: the data lies beside it.
    return [
        replace(model(name), target="openers.build", arguments={"opener": name, "folder": str(folder / "nowhere")})
        for name in OPENERS
    ]


def run(folder: Path, planned: list[ModelSpec], listener: Listener | None = None) -> dict[str, Record]:
    result = sweep(
        folder, cells(planned, opsets=(18,)), stages=BUILT, preload=PRELOADED, listener=listener, timeout_s=60.0
    )
    return {name.partition("/")[0]: record for name, record in by_name(result).items()}


@dataclass(frozen=True, slots=True)
class Runs:
    """First, unchanged, with every file changed, and that in a fresh store."""

    first: dict[str, Record]
    unchanged: dict[str, Record]
    changed: dict[str, Record]
    fresh: dict[str, Record]
    messages: tuple[str, ...]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("openers")
    (folder / "data").mkdir()
    for name, opener in OPENERS.items():
        opener.write(folder / "data" / name, 1)
    planned, listener = models(folder), Listener()
    first = run(folder / "runs", planned, listener)
    unchanged = run(folder / "runs", planned, listener)
    for name, opener in OPENERS.items():
        opener.write(folder / "data" / name, 2)
    changed = run(folder / "runs", planned, listener)
    return Runs(first, unchanged, changed, run(folder / "fresh", planned), tuple(listener.messages))


@pytest.mark.parametrize("name", OPENERS)
def test_a_changed_file_is_noticed_whoever_opened_it(runs: Runs, name: str) -> None:
    assert runs.first[name].verdict == "pass", runs.first[name].message
    assert origin(runs.first[name]) == "ran"
    assert origin(runs.unchanged[name]) == "cached"
    assert origin(runs.changed[name]) == "ran"
    assert content(runs.changed[name]) == content(runs.fresh[name]) != content(runs.first[name])


def origin(record: Record) -> str:
    """Of the reference, which is what the builder read."""
    return record.actions[0].origin


def content(record: Record) -> str:
    """The key of the run: the reference's digest is in it."""
    return next(action.key for action in record.actions if action.mnemonic == "Run")


def test_nothing_was_said(runs: Runs) -> None:
    assert not [text for text in runs.messages if "kernel" in text or "changed while" in text]
