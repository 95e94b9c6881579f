"""docs/architecture.md names files; each of them is there."""

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
