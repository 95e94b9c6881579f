"""A long error keeps its next step."""

from __future__ import annotations

import pytest

from batch_export.stages.failures import short_line


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("x" * 400, "x"),
        ("x" * 401, "x..."),
        ("x" * 401 + ". Next step: write allow_guards: true", "x... Next step: write allow_guards: true"),
        ("x" * 300 + ". Next step: " + "y" * 300, "x... Next step: " + "y" * 300),
        ("x. Next step: " + "y" * 500, "y..."),
        ("x" * 401 + " (at net.py:7). Next step: write y", "x... (at net.py:7) Next step: write y"),
        ("x" * 401 + " (at net.py:7) and more", "x... (at net.py:7)"),
        ("x (at net.py:7) " + "y" * 401 + ". Next step: write z", "y... Next step: write z"),
    ],
)
def test_what_is_cut_and_what_is_not(text: str, end: str) -> None:
    said = short_line(text)
    assert said.endswith(end)
    assert len(said) <= 480
