"""docs/architecture.md: the files that it names are there, and its picture renders."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = set(re.findall(r"`((?:[\w.*-]+/)*[\w.*-]+\.(?:py|yaml|md|toml)|(?:[\w-]+/)+)`", TEXT))
    assert len(named) > 50
    bases = (ROOT, ROOT / "batch_export", ROOT / "docs", ROOT / "batch_export" / "exporter")
    assert not [name for name in sorted(named) if not any(list(base.glob(name)) for base in bases)]


def test_the_picture_is_text_and_names_rooms_that_are_there() -> None:
    (picture, *_) = re.findall(r"```text\n(.*?)```", TEXT, re.S)
    rooms = re.findall(r"\b([a-z]+)/", picture)
    assert len(set(rooms)) >= 8
    assert not [room for room in rooms if not (ROOT / "batch_export" / room).is_dir() and not (ROOT / room).is_dir()]
    assert max(map(len, picture.splitlines())) <= 78
