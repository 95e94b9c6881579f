"""Whatever a reader of ours is given, it answers with a value or one sentence, never with a traceback."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_export.cli.cache import parse_age, parse_size
from batch_export.config.model import model_spec
from batch_export.errors import BatchExportError
from batch_export.record import Cell, Failure, Record
from batch_export.report import run_folder
from batch_export.runner.records_file import RecordsFile
from batch_export.runner.surroundings import read_surroundings
from batch_export.store.bundle import import_tar
from batch_export.store.entry import Entry, decode_entry, encode_entry
from batch_export.store.store import open_store

KEYS = (
    "_target_",
    "inputs",
    "axes",
    "tolerances",
    "timeout_s",
    "memory_gb",
    "tags",
    "seed",
    "requires",
    "output_names",
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
words = st.sampled_from(
    [*KEYS, "dtype", "shape", "range", "fill", "value", "example", "check", "x", "batch", "float32"]
)
trees = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
good = {
    "_target_": "models.a.b",
    "inputs": {"x": {"dtype": "float32", "shape": ["batch", 3]}},
    "axes": {"batch": {"example": 2}},
}
texts = st.text(max_size=20) | st.sampled_from(["ä\n", "\0", "\u2028", '"', "‮"])
records = st.builds(
    Record,
    cell=st.builds(Cell, texts, texts, st.integers(0, 99), texts, texts),
    verdict=st.sampled_from(["pass", "fail", "skip", "flaky"]),
    message=texts,
    attempts=st.lists(st.builds(Failure, st.just("crash"), texts, texts), max_size=2).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), trees, max_size=6), st.booleans())
def test_a_models_config_is_read_or_refused_in_one_sentence(config: dict[str, Any], repaired: bool) -> None:
    said = refusal(lambda: model_spec("m", {**good, **config} if repaired else config))
    assert said is None or said.startswith("model 'm': ")


@settings(max_examples=200, deadline=None)
@given(st.lists(records, max_size=4), st.binary(max_size=40), st.integers(0, 400))
def test_records_come_back_whatever_was_written_after_them(found: list[Record], tail: bytes, cut: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with RecordsFile(folder) as file:
            for record in found:
                file.write(record)
        path = folder / "records.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole + tail.replace(b"\n", b""))
        with RecordsFile(folder) as file:
            assert list(file.found) == found
        path.write_bytes(whole[:cut])
        with RecordsFile(folder) as file:
            assert list(file.found) == found[: len(file.found)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | trees.map(lambda tree: msgspec.json.encode(_finite(tree))))
def test_files_of_a_run_are_read_or_refused_in_one_sentence(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("run.json", "records.jsonl", "environment.json", "summary.json"):
            (folder / file).write_bytes(data)
        assert read_surroundings(folder) is None
        run_folder.read_counts(folder)
        assert run_folder.read_summary(folder) is None or isinstance(run_folder.read_summary(folder), dict)
        for read in (run_folder.read_run, run_folder.read_records):
            said = refusal(functools.partial(read, folder))
            assert said is None or str(folder) in said


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 255))
def test_an_entry_is_read_only_as_it_was_written(noise: bytes, place: int, byte: int) -> None:
    from batch_export.action import ActionResult

    entry = Entry(ActionResult("Run", "a" * 64, {"x": [1, 2.5]}, {"y": "b" * 64}), (("a", "b"),))
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    assert decode_entry(noise) is None
    damaged = bytearray(data)
    damaged[place % len(data)] = byte
    assert decode_entry(bytes(damaged)) in (None, entry)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000))
def test_a_tar_file_is_read_or_refused_in_one_sentence(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.tar"
        path.write_bytes(data)
        said = refusal(lambda: import_tar(open_store(Path(name) / "store"), path))
        assert said is None or "Next step" in said


@given(st.text(max_size=12))
def test_sizes_and_ages_are_read_or_refused_in_one_sentence(text: str) -> None:
    for read in (parse_size, parse_age):
        said = refusal(functools.partial(read, text))
        assert said is None or "write a number with" in said


def refusal(read: Callable[[], Any]) -> str | None:
    """The sentence with which a reader refuses, None when it does not; anything else it raises is passed on."""
    try:
        read()
    except BatchExportError as error:
        return str(error)
    return None


def _finite(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name.encode("utf-8", "replace").decode(): _finite(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [_finite(item) for item in tree]
    if isinstance(tree, str):
        return tree.encode("utf-8", "replace").decode()
    return tree if not isinstance(tree, int) or abs(tree) < 2**63 else 0
