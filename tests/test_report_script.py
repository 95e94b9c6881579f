"""The script of report.html is what its TypeScript sources say; where npm's packages are there, it is built again."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "page"
BUILT = PROJECT / "batch_export" / "report" / "templates" / "report.js"


def test_the_script_was_built_from_these_sources() -> None:
    digest = hashlib.sha256()
    for path in sorted((PAGE / "src").iterdir()):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    first = BUILT.read_text(encoding="utf-8").partition("\n")[0]
    assert digest.hexdigest() in first, "page/src was changed. Next step: nox -s page"


def test_the_script_can_stand_inside_a_page() -> None:
    text = BUILT.read_text(encoding="utf-8")
    assert not re.search(r"</script|<!--", text, re.IGNORECASE)
    assert "sourceMappingURL" not in text


def test_the_sources_leave_no_type_open() -> None:
    for path in (PAGE / "src").glob("*.ts"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"[:<|] ?any\b|\bas any\b|@ts-", text), path


@pytest.mark.skipif(not (PAGE / "node_modules").is_dir() or not shutil.which("npm"), reason="run `nox -s page` first")
def test_the_sources_are_right_and_make_the_very_same_file(tmp_path: Path) -> None:
    shutil.copytree(PAGE, tmp_path / "page", symlinks=True)
    (tmp_path / "batch_export" / "report" / "templates").mkdir(parents=True)
    for name in ("check", "build"):
        subprocess.run(["npm", "run", "--silent", name], cwd=tmp_path / "page", check=True)
    assert (tmp_path / "batch_export" / "report" / "templates" / "report.js").read_bytes() == BUILT.read_bytes()
