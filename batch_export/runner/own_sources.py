"""Modules that are not installed, imported from their sources alone.

Nothing arrives. Leaves: a process in which Python's importer takes no byte code of them. It takes what lies in
`__pycache__` for a source of the same size and second, so that the result of one source would be stored under the
digest of another.
"""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from batch_export.sources.closure import is_installed

_OURS = os.path.join(Path(__file__).resolve().parent.parent, "")


def imported_from_sources() -> None:
    """Has this process compile each such module anew; that of one file takes milliseconds."""
    own: Any = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if path.startswith(_OURS) or is_installed(path):
            return own(self, fullname)  # type: ignore[no-any-return]
        made: CodeType = self.source_to_code(self.get_data(path), path)
        return made

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
