"""What an action gave for files that were there before last is found again when they are back."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_export.action import Action, ActionResult
from batch_export.digest import digest_bytes
from batch_export.sources.recorded import CHANGED
from batch_export.store import Store, earlier, open_store
from batch_export.store.audit import audit
from batch_export.store.bundle import export_tar, import_tar
from batch_export.store.collection import collect
from batch_export.store.entry import read_entry

ACTION = Action("Reference", (("name", "model"),), "Reference model")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store", [tmp_path])


def found(store: Store) -> str | None:
    result = store.lookup(ACTION.key)
    return None if result is None else str(result.facts["data"])


def execute(store: Store, text: str) -> None:
    """Records what the action gives for a file of this content, which is there."""
    write(store, text)
    digest = digest_bytes(text.encode())
    made = store.put_bytes(f"made of {text}".encode())
    store.record(
        ACTION, ActionResult("Reference", ACTION.key, {"data": text}, {"made": made}, sources=(("data.txt", digest),))
    )


def write(store: Store, text: str) -> None:
    (store.source_roots[0] / "data.txt").write_text(text)


def test_branches_take_turns(store: Store) -> None:
    for text in ("main", "branch", "other"):
        execute(store, text)
    for text in ("main", "branch", "main", "other", "other", "branch"):
        write(store, text)
        assert found(store) == text
    write(store, "a fourth")
    assert found(store) is None


def test_the_least_recently_used_goes(store: Store) -> None:
    texts = [f"state {number}" for number in range(earlier.MOST + 2)]
    for text in texts:
        execute(store, text)
    write(store, texts[0])
    assert found(store) is None
    for text in texts[1:]:
        write(store, text)
        assert found(store) == text


def test_what_never_holds_again_takes_no_place(store: Store) -> None:
    store.record(ACTION, ActionResult("Reference", ACTION.key, {"data": "?"}, sources=(("data.txt", CHANGED),)))
    execute(store, "main")
    execute(store, "main")  # as after a failure of the machine
    assert len([*store.entries()]) == 1


def test_an_earlier_result_without_its_files_does_not_count(store: Store) -> None:
    execute(store, "main")
    execute(store, "branch")
    store.blob_path(digest_bytes(b"made of main")).unlink()
    write(store, "main")
    assert found(store) is None
    write(store, "branch")
    assert found(store) == "branch"


def test_what_cannot_be_put_in_front_does_not_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the entry itself, as an export does, would read the other result."""
    execute(store, "main")
    execute(store, "branch")
    write(store, "main")
    with monkeypatch.context() as patched:
        patched.setattr(earlier, "write_atomic", _refused)
        assert found(store) is None
    assert found(store) == "main"
    entry = read_entry(store.entry_path(ACTION.key))
    assert entry is not None
    assert entry.result.facts["data"] == "main"


def _refused(*_: object) -> None:
    raise PermissionError


def test_earlier_results_are_sound_entries_that_are_collected_and_stay_here(store: Store, tmp_path: Path) -> None:
    execute(store, "main")
    execute(store, "branch")
    assert audit(store).sound
    assert (audit(store).entries, len([*store.entries()])) == (2, 2)
    export_tar(store, tmp_path / "store.tar", None, ())
    other = open_store(tmp_path / "other", [tmp_path])
    import_tar(other, tmp_path / "store.tar")
    assert (found(other), len([*other.entries()])) == ("branch", 1)
    assert collect(store, 0).removed_actions == 2
    assert not [*store.entries()]
