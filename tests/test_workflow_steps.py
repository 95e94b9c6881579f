"""The shell steps of the workflows, of the GitLab example and of the pre-commit hook, as their runners execute them.

nox's sessions are run for real, in this environment; only the matrix and the hunt are made small. Sessions that run
this test or need other packages (the tests themselves, types, the site, ...) are looked up and not run. pip and apt-get
are left out: `python`, `nox`, `pip` and `apt-get` are scripts of this test, first on the path, as are tools of lint
that are not installed here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("nox", reason="nox is not installed")
PROJECT = Path(__file__).parents[1]
WORKFLOWS = [path.name for path in sorted((PROJECT / ".github" / "workflows").glob("*.yml"))]
SMALL = (
    "matrix.models=[mlp_nested] matrix.opsets=[18] matrix.dynamic=[static] matrix.providers=[cpu] measure.budget_s=0.3"
)
PYTHON = f"""#!/bin/sh
case "$*" in *+sweep=*) set -- "$@" {SMALL};; esac
exec {sys.executable} "$@"
"""
NOX = f"""#!/bin/sh
echo "nox $*" >> "$TOOL_LOG"
case "$*" in *"-s hunt"*) set -- $(echo "$*" | sed "s/--minutes 10/--count 2 --workers 1 --opsets 1/");; esac
case "$*" in
    *"-s sweep"*|*"-s hunt"*|*"-s lint"*) exec {sys.executable} -m nox --no-venv --no-install "$@";;
    *) exec {sys.executable} -m nox --list "$@";;
esac
"""
NOTED = """#!/bin/sh
echo "$(basename "$0") $*" >> "$TOOL_LOG"
"""
LINT = ("ruff", "lint-imports", "check-jsonschema", "pre-commit")


EXECUTED = ("sweep", "hunt", "lint")
"""Sessions of the workflows that these tests execute."""
LOOKED_UP = ("types", "tests", "docs", "browser", "page")
"""Those that are only looked up: they run this test, or need what is not installed with it."""
BY_HAND = ("nightly", "compare", "bench", "faults", "world", "ops", "runtimes")
"""Sessions that no workflow calls."""


class Runner:
    """A folder to work in, with the project's noxfile, and a path with our own python, nox and pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "tools"
        tools.mkdir()
        own = Path(sys.executable).parent
        noted = ("pip", "apt-get", *(name for name in LINT if not (own / name).exists()))
        for name, text in (("python", PYTHON), ("nox", NOX), *((name, NOTED) for name in noted)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        for name in ("noxfile.py", "pyproject.toml", "constraints.txt"):
            shutil.copy(PROJECT / name, folder)
        self.log = folder / "tools.log"
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join((str(tools), str(own), os.environ["PATH"])),
            "PYTHONPATH": str(PROJECT),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
            "TOOL_LOG": str(self.log),
            "GITHUB_STEP_SUMMARY": str(folder / "step_summary.md"),
        }

    def shell(self, script: str, **environment: str) -> str:
        """Runs a script as all runners do, and returns what it printed."""
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


def scripts_of(steps: list[Any]) -> dict[str, str]:
    return {step["name"]: step["run"] for step in steps if "run" in step}


def sessions_of(script: str) -> list[str]:
    return re.findall(r"\bnox (?:-R )?-s (\S+)", script)


@pytest.mark.ops
def test_the_steps_of_the_nightly_workflow_run_in_their_order(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    steps = loaded(".github/workflows/nightly.yml")["jobs"]["sweep"]["steps"]
    scripts = scripts_of(steps)
    assert list(scripts) == ["Install", "Sweep", "Summary", "Make the store smaller"]
    said = {name: runner.shell(script, GITHUB_ACTIONS="true") for name, script in scripts.items()}
    assert "2 cells: 2 pass" in said["Sweep"]
    summary = (tmp_path / "step_summary.md").read_text()
    assert summary.startswith("# batch_export")
    assert runner.log.read_text().splitlines() == [
        "pip install -c constraints.txt nox",
        "nox -s sweep -- +sweep=nightly",
        "nox -R -s sweep -- cache gc --max-size 4G",
    ]
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
@pytest.mark.ops
def test_the_workflow_of_pushes_exports_the_small_models_and_keeps_the_report(tmp_path: Path) -> None:
    workflow = loaded(".github/workflows/checks.yml")
    assert set(workflow[True]) == {"push", "pull_request"}, "YAML reads `on` as true"
    steps = workflow["jobs"]["exports"]["steps"]
    runner = Runner(tmp_path)
    said = {name: runner.shell(script, GITHUB_ACTIONS="true") for name, script in scripts_of(steps).items()}
    assert "1 cell: 1 pass" in said["Sweep"]
    assert (tmp_path / "step_summary.md").read_text().startswith("# batch_export")
    (report,) = (step for step in steps if step.get("name") == "Report")
    assert all(list(tmp_path.glob(path)) for path in report["with"]["path"].split()), "every artifact is there"
    caches = [step for step in steps if "actions/cache" in step.get("uses", "")]
    for step in caches:
        assert all((tmp_path / path).exists() for path in step["with"]["path"].split())
    assert [step["uses"].split("@")[0].rpartition("/")[2] for step in caches] == ["restore", "save"]


def test_a_red_night_keeps_the_store_and_the_history() -> None:
    (shown,) = re.findall(
        r"^```yaml title=[^\n]*nightly.yml\"\n(.*?)^```",
        (PROJECT / "docs" / "tutorial.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    workflows = [yaml.safe_load(shown), *(loaded(f".github/workflows/{name}") for name in WORKFLOWS)]
    for workflow in workflows:
        steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "cache" in step.get("uses", "")]
        assert [step["uses"] for step in steps if step["uses"].startswith("actions/cache@")] == []
        saved = [step for step in steps if "cache/save" in step["uses"]]
        assert saved
        assert {step["if"] for step in saved} == {"always()"}
    assert gitlab_job(loaded("examples/gitlab/gitlab-ci.yml"), "nightly")["cache"]["when"] == "always"


def test_every_other_session_that_a_workflow_calls_is_there(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for name in WORKFLOWS:
        for job in loaded(f".github/workflows/{name}")["jobs"].values():
            words = job.get("strategy", {}).get("matrix", {}).get("session", [""])
            for script in scripts_of(job["steps"]).values():
                assert "python -m batch_export" not in script, "what a runner executes is a session of nox"
                for word in words:
                    filled = script.replace("${{ matrix.session }}", word)
                    for session in sessions_of(filled):
                        if session not in EXECUTED:
                            said = runner.shell(filled, GITHUB_RUN_NUMBER="7")
                            assert re.search(rf"^\* {session}\b", said, re.MULTILINE), said
    assert {f"nox -s {name}" for name in LOOKED_UP} <= set(runner.log.read_text().splitlines())
    names = re.findall(r"@nox.session(?:\(.*\))?\ndef (\w+)", (PROJECT / "noxfile.py").read_text())
    assert {*EXECUTED, *LOOKED_UP, *BY_HAND} == set(names), "every session is somewhere, or said to be a person's"


def hunting(runner: Runner, script: str, **number: str) -> None:
    """Runs the step of a hunt over two programs."""
    shutil.copytree(PROJECT / "tests", runner.folder / "tests", ignore=shutil.ignore_patterns("golden", "__pycache__"))
    said = runner.shell(script, **number)
    assert "nox -s hunt -- --minutes 10 --seed 700000" in runner.log.read_text()
    assert "Session hunt was successful" in said
    assert (runner.folder / "outputs" / "hunt").is_dir(), "the artifact is where the workflow looks for it"


@pytest.mark.slow
@pytest.mark.ops
def test_the_hunt_of_the_nightly_workflow_runs(tmp_path: Path) -> None:
    steps = loaded(".github/workflows/nightly.yml")["jobs"]["hunt"]["steps"]
    (findings,) = (step["with"]["path"] for step in steps if step.get("name") == "Findings")
    assert findings == "outputs/hunt"
    hunting(Runner(tmp_path), scripts_of(steps)["Hunt"], GITHUB_RUN_NUMBER="7")


def test_the_lint_of_the_workflow_of_pushes_runs(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for name in ("examples", ".github", "batch_export"):
        (tmp_path / name).symlink_to(PROJECT / name)
    step = scripts_of(loaded(".github/workflows/checks.yml")["jobs"]["code"]["steps"])["Session"]
    said = runner.shell(step.replace("${{ matrix.session }}", "lint"), GITHUB_ACTIONS="true")
    assert "Session lint was successful" in said


def gitlab_job(jobs: dict[str, Any], name: str) -> dict[str, Any]:
    """A job with what it extends below it."""
    own = jobs[name]
    return {**(gitlab_job(jobs, own["extends"]) if "extends" in own else {}), **own}


@pytest.mark.slow
def test_the_script_of_the_gitlab_example_leaves_its_artifacts(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    jobs = loaded("examples/gitlab/gitlab-ci.yml")
    job = gitlab_job(jobs, "nightly")
    steps = loaded(".github/workflows/checks.yml")["jobs"]["exports"]["steps"]
    assert gitlab_job(jobs, "exports")["script"] == [scripts_of(steps)["Sweep"]], "which the test above runs"
    for part in ("before_script", "script", "after_script"):
        runner.shell("\n".join(job[part]))
    report = tmp_path / job["artifacts"]["paths"][0]
    assert not report.is_symlink()
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).is_file()
    assert (report / "report.html").is_file()
    assert all((tmp_path / path).exists() for path in job["cache"]["paths"])


def test_the_other_jobs_of_the_gitlab_example_call_sessions_that_are_there(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    jobs = loaded("examples/gitlab/gitlab-ci.yml")
    called = []
    for name in ("code", "report"):
        job = gitlab_job(jobs, name)
        (matrix,) = job["parallel"]["matrix"]
        runner.shell("\n".join(job["before_script"]))
        for session in matrix["SESSION"]:
            called.append(session)
            if session not in EXECUTED:
                assert f"* {session} " in runner.shell("\n".join(job["script"]), SESSION=session)
    assert "apt-get install -y chromium npm" in runner.log.read_text()
    assert sorted(called) == sorted(["lint", *LOOKED_UP])
    scripts = scripts_of(loaded(".github/workflows/nightly.yml")["jobs"]["hunt"]["steps"])
    (hunt,) = gitlab_job(jobs, "hunt")["script"]
    number = r'"\$.*"$'
    assert re.sub(number, "", hunt) == re.sub(number, "", scripts["Hunt"]), "which a test above runs"


@pytest.mark.slow
@pytest.mark.ops
def test_the_pre_commit_hook_runs(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    ((hook,),) = (repo["hooks"] for repo in loaded("examples/pre-commit/pre-commit-config.yaml")["repos"])
    assert "1 cell: 1 pass" in runner.shell(hook["entry"])
    assert re.match(hook["files"], "models/torch_basic.py")
    assert not re.match(hook["files"], "docs/errors.md")
