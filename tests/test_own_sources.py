"""Children import modules that are not installed from their sources, whatever byte code lies beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READ = "import sys; sys.path.insert(0, {folder!r}); import stale_module; print(stale_module.NUMBER)"
CHILD = "from batch_export.runner.own_sources import imported_from_sources; imported_from_sources(); "


@pytest.mark.parametrize(("begun", "number"), [("", "3"), (CHILD, "4")])
def test_a_source_of_the_same_size_and_second_is_read(begun: str, number: str, tmp_path: Path) -> None:
    """Python itself takes the byte code for that of the source."""
    source = tmp_path / "stale_module.py"
    source.write_text("NUMBER = 3\n")
    code = READ.format(folder=str(tmp_path))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    first = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert first.stdout.split() == ["3"]
    assert list(tmp_path.glob("__pycache__/*.pyc"))
    before = source.stat()
    source.write_text("NUMBER = 4\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = subprocess.run(
        [sys.executable, "-c", begun + code], env=environment, capture_output=True, text=True, check=True
    )
    assert again.stdout.split() == [number]
