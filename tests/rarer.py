"""Examples that the session `ops` runs besides those that every run of the tests has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, examples: Iterable[Any]) -> list[Any]:
    """Examples of one parameter of which every run has the first few, and the session `ops` the others."""
    listed = list(examples)
    return [*listed[:count], *(pytest.param(one, marks=pytest.mark.ops) for one in listed[count:])]
