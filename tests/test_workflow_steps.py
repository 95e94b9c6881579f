"""The shell steps of the workflow and of the GitLab example, in their order, as a runner would execute them.

Only the matrix is made small, and pip is left out: `python` and `pip` are scripts of this test, first on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
PROJECT = Path(__file__).parents[1]
SMALL = (
    "matrix.models=[mlp_nested] matrix.opsets=[18] matrix.dynamic=[static] matrix.providers=[cpu] measure.budget_s=0.3"
)
PYTHON = f"""#!/bin/sh
case "$*" in *+sweep=*) set -- "$@" {SMALL};; esac
exec {sys.executable} "$@"
"""
PIP = """#!/bin/sh
echo "pip $*" >> "$PIP_LOG"
"""


class Runner:
    """A folder to work in, and a path with our own python and pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "tools"
        tools.mkdir()
        for name, text in (("python", PYTHON), ("pip", PIP)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
            "PIP_LOG": str(folder / "pip.log"),
            "GITHUB_STEP_SUMMARY": str(folder / "step_summary.md"),
        }

    def shell(self, script: str, **environment: str) -> str:
        """Runs a script as both runners do, and returns what it printed."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def loaded(path: str) -> Any:
    return yaml.safe_load((PROJECT / path).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_steps_of_the_workflow_run_in_their_order(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    steps = loaded(".github/workflows/nightly.yml")["jobs"]["sweep"]["steps"]
    scripts = {step["name"]: step["run"] for step in steps if "run" in step}
    assert list(scripts) == ["Install", "Sweep", "Summary", "Make the store smaller"]
    said = {name: runner.shell(script, GITHUB_ACTIONS="true") for name, script in scripts.items()}
    assert "2 cells: 2 pass" in said["Sweep"]
    summary = (tmp_path / "step_summary.md").read_text()
    assert summary.startswith("# batch_export")
    assert len((tmp_path / "pip.log").read_text().splitlines()) == 2
    paths = next(step for step in steps if step.get("name") == "Report")["with"]["path"].split()
    assert all(list(tmp_path.glob(path)) for path in paths), "every artifact is there"

    (tmp_path / "baselines").mkdir()
    runner.shell("python -m batch_export baseline accept latest --to baselines/nightly.json")
    again = {name: runner.shell(script, GITHUB_ACTIONS="true") for name, script in scripts.items()}
    assert "against baselines/nightly.json: " in again["Sweep"]
    found = json.loads((tmp_path / "outputs" / "latest" / "summary.json").read_text())
    assert found["comparison"] is not None
    text = (tmp_path / "step_summary.md").read_text().removeprefix(summary)
    assert text.index("baselines/nightly.json") < text.index("# batch_export"), "what changed comes first"


@pytest.mark.slow
def test_the_script_of_the_gitlab_example_leaves_its_artifacts(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    job = loaded("examples/gitlab/gitlab-ci.yml")["nightly"]
    for part in ("before_script", "script", "after_script"):
        runner.shell("\n".join(job[part]))
    report = tmp_path / job["artifacts"]["paths"][0]
    assert not report.is_symlink()
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).is_file()
    assert (report / "report.html").is_file()
    assert all((tmp_path / path).exists() for path in job["cache"]["paths"])
