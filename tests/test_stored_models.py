"""runner/stored_models.py: a stored file is handed to a later look at a cell only if it is what its digest says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recording import CPU, cell, passed

from batch_export.action import Action, ActionResult
from batch_export.errors import CorruptArtifactError
from batch_export.record import ActionFacts, OnnxFacts, Record
from batch_export.runner import follow_up
from batch_export.runner.remeasure import remeasure
from batch_export.runner.stored_models import stored_model
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import MatrixSpec, RunnerSpec, RunSpec
from batch_export.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def stored(store: Store, folder: Path) -> Record:
    """A record of a stored file with external data."""
    for name in ("model.onnx", "data"):
        (folder / name).write_bytes(name.encode())
    model = store.put_model(folder / "model.onnx", {"model.data": folder / "data"})
    action = Action("Translate", (("opset", "18"),))
    store.record(action, ActionResult("Translate", action.key, model=model))
    facts = OnnxFacts(store.model_path(model).relative_to(store.root).as_posix(), model.onnx, 1, 18, 1)
    return replace(passed(cell()), onnx=facts, actions=(ActionFacts("Translate", action.key, "ran", 0.0),))


def damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize("name", ["model.data", "*.onnx"])
def test_neither_a_damaged_file_nor_one_with_damaged_data_is_handed_out(
    store: Store, tmp_path: Path, name: str
) -> None:
    record = stored(store, tmp_path)
    path = stored_model(record, store)
    assert path.read_bytes() == b"model.onnx"
    damage(next(path.parent.glob(name)))
    told: list[str] = []
    spec = RunSpec(MatrixSpec((), (), (), (), ()), RunnerSpec(), MeasureSpec(), {}, str(store.root), str(tmp_path))
    anew = open_store(store.root)
    where = record.cell
    facts = remeasure([where], {where: record}, {where: record}, anew, anew, {"cpu": CPU})[where]
    assert "is damaged" in facts.error
    assert follow_up._file_of(record, spec, told.append) == ""
    assert told


def test_a_damaged_file_is_told_of_and_goes(store: Store, tmp_path: Path) -> None:
    record = stored(store, tmp_path)
    path = stored_model(record, store)
    damage(path)
    with pytest.raises(CorruptArtifactError, match="is damaged"):
        stored_model(record, open_store(store.root))
    assert not path.exists()


def test_a_record_of_somebody_elses_moves_no_file_to_the_quarantine(store: Store, tmp_path: Path) -> None:
    record = stored(store, tmp_path)
    path = stored_model(record, store)
    assert record.onnx is not None
    other = replace(record, onnx=replace(record.onnx, sha256="f" * 64), actions=())
    with pytest.raises(LookupError, match="no longer in the store"):
        stored_model(other, open_store(store.root))
    assert path.exists()
