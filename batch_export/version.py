"""The version of this program; pyproject.toml has the same, and a test holds the two together."""

from __future__ import annotations

__version__ = "0.1.0"
