"""What CI runs: `nox` alone runs lint, types and tests; `nox -s sweep -- <overrides>` and the others are named.

Dependencies are written once, in pyproject.toml (groups) and constraints.txt (exact versions).
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
from typing import NoReturn

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
CONSTRAINTS = ("-c", "constraints.txt")
SCHEMAS = {
    ".github/workflows/checks.yml": "github-workflows",
    ".github/workflows/nightly.yml": "github-workflows",
    "examples/gitlab/gitlab-ci.yml": "gitlab-ci",
}
SHARED_OUT = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three processes on two cores, since many tests wait for processes of their own; a file stays in one process."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TYPED = ("tests/test_documentation.py", "tests/test_first_and_last_minute.py")
"""The files with tests marked `docs`."""


def shared_by_tests() -> list[str]:
    """The modules and packages that the tests share: all but the tests themselves, seen from their folder."""
    folder = pathlib.Path(__file__).parent / "tests"  # whatever folder the session is in
    found = [path for path in folder.iterdir() if not path.name.startswith(("test_", "_"))]
    return sorted(path.name for path in found if path.suffix == ".py" or (path / "__init__.py").exists())


def files_of_ops() -> list[str]:
    """The files with tests that the session `tests` leaves to `ops`: they name the mark, or what gives it."""
    folder = pathlib.Path(__file__).parent
    found = sorted((folder / "tests").glob("test_*.py"))
    given = re.compile(r"mark\.(ops|sampled)\b|import rarer|from rarer import")
    return [path.relative_to(folder).as_posix() for path in found if given.search(path.read_text(encoding="utf-8"))]


def group(name: str) -> tuple[str, ...]:
    """The requirements of one dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


def install(session: nox.Session, *groups: str) -> None:
    """Installs the project with its zoo, and the groups."""
    session.install(*CONSTRAINTS, "-e", ".[zoo]", *(requirement for name in groups for requirement in group(name)))


def left_out(session: nox.Session, why: str) -> NoReturn:
    """Skips the session; on a machine of CI, where nobody would notice, it fails."""
    if os.environ.get("CI"):
        session.error(why)
    session.skip(why)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests, three at a time, since many wait for processes: `nox -s tests -- tests/test_matrix.py -x`."""
    install(session, "test")
    session.run("pytest", *SHARED_OUT, *session.posargs, env=ONE_THREAD)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, format and rules; what may import what; workflow and examples against the schemas of those who run them."""
    session.install(*CONSTRAINTS, *group("lint"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")
    for path, schema in SCHEMAS.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", path)
    session.run("pre-commit", "validate-config", "examples/pre-commit/pre-commit-config.yaml")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, on the package, the benchmarks, and the modules that the tests share."""
    install(session, "types", "test", "ops")  # the tests' own modules import what the tests need
    session.run("mypy", "--strict", "-p", "batch_export", "-p", "benchmarks")
    with session.chdir("tests"):
        session.run("mypy", "--strict", "--config-file", "../pyproject.toml", *shared_by_tests())


@nox.session
def sweep(session: nox.Session) -> None:
    """The main job, or another: `nox -s sweep -- +sweep=smoke`."""
    install(session)
    session.run("python", "-m", "batch_export", *(session.posargs or ["+sweep=all"]))


@nox.session
def nightly(session: nox.Session) -> None:
    """The test of five nights, then everything, with latency measured afresh."""
    install(session, "test")
    session.run("pytest", "-m", "nightly", "tests/test_nightly_real.py", env=ONE_THREAD)
    session.run("python", "-m", "batch_export", "+sweep=nightly", *session.posargs)
    session.run("python", "-m", "batch_export", "+sweep=runtimes")


@nox.session
def runtimes(session: nox.Session) -> None:
    """Every runtime that installs here: environment, conformance, a sweep; `-- --write` for docs/runtimes.md.

    Environments that cannot be made are skipped with the reason.
    """
    install(session, "test")
    session.run("python", "-m", "batch_export", "env", "create", success_codes=[0, 1])
    session.run("pytest", "-m", "runtimes", "tests/test_runtime_conformance.py", env=ONE_THREAD)
    words = [word for word in session.posargs if word != "--write"]
    session.run("python", "-m", "batch_export", "+sweep=runtimes", *words, success_codes=[0, 1])
    if "--write" in session.posargs:
        with pathlib.Path("docs/runtimes.md").open("w", encoding="utf-8") as target:
            session.run("python", "-m", "benchmarks.runtimes", "outputs/latest", stdout=target)


@nox.session
def compare(session: nox.Session) -> None:
    """Two runs: `nox -s compare -- latest~1 latest`, or a baseline file and a run."""
    install(session)
    session.run("python", "-m", "batch_export", "compare", *(session.posargs or ["latest~1", "latest"]))


@nox.session
def browser(session: nox.Session) -> None:
    """The HTML report in Chromium: `apt-get install chromium` first, the session is skipped without one."""
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        left_out(session, "no chromium on the path (Debian: apt-get install chromium)")
    install(session, "browser")
    session.run("pytest", "tests/test_browser.py", *session.posargs, env=ONE_THREAD)


@nox.session(venv_backend="none")
def page(session: nox.Session) -> None:
    """The script of report.html: its TypeScript is checked and bundled (Node is needed, and npm's registry)."""
    if shutil.which("npm") is None:
        left_out(session, "no npm on the path (Debian: apt-get install npm)")
    with session.chdir("page"):
        session.run("npm", "ci", "--silent", external=True)
        session.run("npm", "run", "--silent", "check", external=True)
        session.run("npm", "run", "--silent", "build", external=True)


@nox.session
def faults(session: nox.Session) -> None:
    """Every fault of tests/faults; the table goes to docs/reliability.md (mounting small disks needs root)."""
    install(session, "test")
    session.chdir("tests")
    session.run("python", "-m", "faults.table", "--write", *session.posargs, env=ONE_THREAD)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site, in site/, and the commands of tutorial and how-to pages (`-- --no-commands`)."""
    install(session, "test", "docs")
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # Material's notice about its successor; it is fixed until 2027
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", "site", env=quiet)
    if "--no-commands" not in session.posargs:
        session.run("pytest", "-m", "docs", *TYPED, *session.posargs, env=ONE_THREAD)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks that the README shows: `nox -s bench -- export` or `-- sweep`; both by default."""
    install(session, "bench")
    for name in session.posargs or ["export", "sweep"]:
        session.run("python", "-m", f"benchmarks.{name}")


@nox.session
def ops(session: nox.Session) -> None:
    """torch's operator database against its expectations, and rarer architectures: `nox -s ops -- --dtype float32`."""
    install(session, "test", "ops")
    out = session.create_tmp() + "/ops.jsonl"
    pathlib.Path(out).unlink(missing_ok=True)
    session.run("python", "tests/op_database.py", "--check", "--out", out, *session.posargs, env=ONE_THREAD)
    session.run("pytest", "-m", "ops", *SHARED_OUT, *files_of_ops(), env=ONE_THREAD)


@nox.session
def world(session: nox.Session) -> None:
    """Architectures that nobody chose: `nox -s world -- --sample 60 --seed 3`; further words are overrides."""
    install(session, "test")
    words, overrides = list(session.posargs), ["+sweep=world"]
    for flag, key in (("--sample", "matrix.sample"), ("--seed", "matrix.seed"), ("--shard", "runner.shard")):
        if flag in words:
            at = words.index(flag)
            overrides.append(f"{key}={words[at + 1]}")
            del words[at : at + 2]
    session.run("pytest", "-m", "world", "tests/test_transformers_collection.py", env=ONE_THREAD)
    session.run("python", "-m", "batch_export", *overrides, *words, success_codes=[0, 1])


@nox.session
def hunt(session: nox.Session) -> None:
    """Generated programs against eager: `nox -s hunt -- --minutes 10 --seed 0`; findings go to outputs/hunt.

    Behind them loops over a free axis, from the same seed, which go to outputs/hunt_loops.
    """
    install(session, "test")
    session.chdir("tests")
    words = list(session.posargs)
    seed = words[words.index("--seed") + 1] if "--seed" in words else "0"
    session.run("python", "-W", "ignore", "-m", "hunt", "--out", "../outputs/hunt", *words, env=ONE_THREAD)
    loops = ("-m", "hunt.loops", "--seed", seed, "--out", "../outputs/hunt_loops")
    session.run("python", "-W", "ignore", *loops, env=ONE_THREAD)
