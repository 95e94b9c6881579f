"""README, .ci/run, noxfile and pyproject agree with one another."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from batch_export.record import SCHEMA_VERSION
from batch_export.store.entry import STORE_FORMAT

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_documents_name_the_formats_that_the_program_writes() -> None:
    reliability, results = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("reliability.md", "results.md")
    )
    assert f"names the format, now {STORE_FORMAT}." in reliability
    assert f"Each has a `schema_version`, now {SCHEMA_VERSION};" in results


def test_the_readmes_first_two_blocks_are_one_line_each() -> None:
    for block in BLOCKS[:2]:
        assert block.count("\n") == 1
        assert "-c constraints.txt" in block
    assert BLOCKS[0].rstrip().endswith("-m batch_export +sweep=all")
    assert ".[zoo]" in BLOCKS[0]
    assert BLOCKS[1].rstrip().endswith("nox -s tests")


def test_ci_reads_the_second_block_and_holds_no_copy_of_it() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert "block == 2" in script
    assert "README.md" in script
    assert BLOCKS[1].strip() not in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_every_dependency_has_an_exact_version() -> None:
    requirements = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["zoo"]]
    requirements += [entry for group in PROJECT["dependency-groups"].values() for entry in group]
    versions = pinned()
    assert versions["torch"] == "2.13.0"
    for requirement in requirements:
        name = re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0]
        assert re.sub(r"[-_.]+", "-", name).lower() in versions, requirement
    assert all(re.fullmatch(r"[\w.]+", version) for version in versions.values())


def test_the_sessions_are_there() -> None:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    assert set(re.findall(r"@nox.session(?:\(.*\))?\ndef (\w+)", text)) == {
        *(
            "tests",
            "lint",
            "types",
            "sweep",
            "nightly",
            "compare",
            "browser",
            "bench",
            "faults",
            "world",
            "ops",
            "hunt",
            "runtimes",
            "docs",
            "page",
        ),
    }
    assert "pip install" not in text


def test_what_is_left_to_another_session_is_run_by_it() -> None:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for session, named in (
        ("nightly", r'"-m", "nightly", (.*?), env'),
        ("runtimes", r'"-m", "runtimes", (.*?), env'),
        ("docs", r"^TYPED = (.*)$"),
    ):
        files = [path for path in (ROOT / "tests").glob("test_*.py") if path != Path(__file__)]
        texts = {f"tests/{path.name}": path.read_text(encoding="utf-8") for path in files}
        marked = {name for name, text in texts.items() if f"mark.{session}" in text}
        (found,) = re.findall(named, text, re.MULTILINE)
        assert set(re.findall(r'"(.+?)"', found)) == marked


def test_a_file_that_a_run_leaves_in_the_tree_is_none_of_the_project() -> None:
    """Neither an exported file nor its weights is added by `git add .`, and none has been."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"*.onnx", "*.onnx.data"} <= set(ignored)
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "*.onnx", "*.onnx.data"], capture_output=True, text=True, check=True
        )
        assert listed.stdout == ""


def test_the_version_is_written_once_more_only() -> None:
    import batch_export

    assert PROJECT["project"]["version"] == batch_export.__version__
