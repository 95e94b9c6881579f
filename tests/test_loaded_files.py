"""runner/loaded.py: the local files that a process has loaded, and none of those that packages brought."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import json, sys
from pathlib import Path
from batch_export.runner.loaded import LoadedFiles, installed_modules

root = Path(sys.argv[1])
sys.path[:0] = [str(root), str(root / ".venv/lib/python3.11/site-packages")]
watched = LoadedFiles([root], [root / "outputs"])
watched.watch()
import mine, package, linked_file, linked.inside
for name in ("weights.bin", "outputs/run.log", "outputs/kept.bin", "cache.pyc"):
    (root / name).read_bytes()
(root / "written.txt").write_text("out")
assert str(root / ".venv/lib/python3.11/site-packages/package.py") in installed_modules()
assert not any("linked" in name or name.endswith("mine.py") for name in installed_modules())
once = [name for name, _ in watched.sources()]
assert once == [name for name, _ in watched.sources()]
later = LoadedFiles([root], [root / "outputs"], installed_modules())
assert [name for name, _ in later.sources()] == [name for name in once if name.endswith(".py")]
print(json.dumps(once))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    packages = tmp_path / ".venv/lib/python3.11/site-packages"
    for folder in (packages, tmp_path / "outputs", tmp_path / "sources/linked"):
        folder.mkdir(parents=True)
    for name in ("mine.py", "sources/linked_file.py", "sources/linked/__init__.py", "sources/linked/inside.py"):
        (tmp_path / name).write_text("")
    (packages / "package.py").write_text("")
    (packages / "linked_file.py").symlink_to(tmp_path / "sources/linked_file.py")
    (packages / "linked").symlink_to(tmp_path / "sources/linked")
    for name in ("weights.bin", "outputs/run.log", "outputs/kept.bin", "cache.pyc"):
        (tmp_path / name).write_bytes(b"1")
    return tmp_path


def test_what_is_local_is_found_through_links_and_what_is_installed_is_not(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        '["mine.py", "sources/linked/__init__.py", "sources/linked/inside.py", "sources/linked_file.py", "weights.bin"]'
    )
