"""Making an environment: once, by one process, with the package index's ordinary client.

A request arrives, an `Environment` leaves; where one is there already nothing is fetched. What was left half-made, or
was changed since, is removed and made anew. Why one cannot be made is one sentence with the installer's own words.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batch_export.environments import layers, shelf
from batch_export.environments.request import Request, request
from batch_export.environments.shelf import Environment
from batch_export.errors import BatchExportError

LEAST_NODE = (18, 0)
_PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2", "--timeout", "20")
_INSTALL_LIMIT_S = 1800.0
_ASK_LIMIT_S = 30.0
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|"
    r"dns error|tcp connect error|error sending request|ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ENETUNREACH"
)
"""What pip, uv and npm print where nobody answers; only chooses between two sentences."""
_NO_SPACE = os.strerror(errno.ENOSPC)
_PIP_SETTINGS = (
    ", or set another index (PIP_INDEX_URL), or have pip look into the folders of PIP_FIND_LINKS alone (PIP_NO_INDEX=1)"
)
_COMPLAINT = re.compile(r"^(?:npm )?(?:error|ERROR|ERR!)[: ]\s*(?P<words>.+)$", re.MULTILINE)


class EnvironmentUnavailableError(BatchExportError):
    """An environment that is needed is not there and cannot be made, or nobody says what an index holds.

    Attributes:
        unreached: whether that is because the package index did not answer, which says nothing of what was asked for.
        lasting: whether the installer refused, and would again.
    """

    def __init__(self, sentence: str, *, unreached: bool = False, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.unreached = unreached
        self.lasting = lasting


def environment_for(
    requirements: Sequence[str],
    language: str = "python",
    *,
    layered: bool = False,
    again: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Environment:
    """Returns the environment with these requirements, made if need be.

    Args:
        requirements: as a provider's config lists them.
        language: `python` or `node`.
        layered: whether it lies over the environment of this process, see `layers.py`.
        again: whether one is tried again that an installer refused to make before; if not, it is kept that it did.
        tell: is given one sentence before anything is installed.

    Raises:
        EnvironmentUnavailableError: it cannot be made; one sentence.
        UsageError: a requirement cannot be meant.
    """
    wanted = wanted_for(requirements, language, layered=layered)
    there = shelf.found(wanted)
    if there is not None:
        return there
    refused = "" if again else shelf.refusal(shelf.folder_of(wanted))
    if refused:
        raise EnvironmentUnavailableError(
            f"as tried before (`env remove {wanted.folder_name}` lets it be tried again), {refused}",
            lasting=True,
        )
    try:
        with shelf.held(wanted):
            there = shelf.found(wanted)  # somebody else may have made it while we waited
            return there or _made(wanted, tell, keep_refusal=not again)
    except OSError as error:
        raise EnvironmentUnavailableError(
            f"the environment ({wanted}) cannot be made in {shelf.root()}: {error.strerror or error}. "
            f"Next step: free space or choose another folder with {shelf.ROOT_VARIABLE}"
        ) from error


def wanted_for(requirements: Sequence[str], language: str = "python", *, layered: bool = False) -> Request:
    """Returns the request with the interpreter that it would be made with.

    Raises:
        EnvironmentUnavailableError: there is no Node, or it is too old.
        UsageError: a requirement cannot be meant.
    """
    if language == "node":
        return replace(request(requirements, "node"), interpreter=node_version())
    return request(requirements, below=layers.ground() if layered else "")


def node_version() -> str:
    """Returns the version of the Node on the path.

    Raises:
        EnvironmentUnavailableError: there is none, or it is too old.
    """
    program = shutil.which("node")
    least = ".".join(map(str, LEAST_NODE))
    if program is None:
        raise EnvironmentUnavailableError(f"Node is not on the path. Next step: install Node {least} or later")
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=False)
        text = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentUnavailableError(f"Node at {program} does not start: {error}") from error
    found = re.fullmatch(r"v(\d+)\.(\d+)\.\S+", text)
    if found is None:
        raise EnvironmentUnavailableError(f"Node at {program} does not print its version; it printed {text[:80]!r}")
    if (int(found.group(1)), int(found.group(2))) < LEAST_NODE:
        raise EnvironmentUnavailableError(
            f"Node at {program} is {text}, too old. Next step: install Node {least} or later"
        )
    return text.removeprefix("v")


def _made(wanted: Request, tell: Callable[[str], None] | None, *, keep_refusal: bool) -> Environment:
    folder = shelf.folder_of(wanted)
    if folder.exists():
        shutil.rmtree(folder)
    if tell is not None:
        tell(f"making the environment {folder.name} ({wanted})")
    began = time.monotonic()
    try:
        maker = _install_node(wanted, folder) if wanted.language == "node" else _install_python(wanted, folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if keep_refusal and isinstance(error, EnvironmentUnavailableError) and error.lasting:
            shelf.keep_refusal(folder, str(error))
        raise
    return shelf.finish(folder, wanted, wanted.interpreter, maker, round(time.monotonic() - began, 1))


def _install_python(wanted: Request, folder: Path) -> str:
    uv = shutil.which("uv")
    python = str(shelf.python_in(folder))
    packages = [*wanted.requirements, "numpy"]  # the worker's values are numpy's
    if wanted.below:
        return _install_layer(wanted, folder)
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], wanted, "uv")
        _run([uv, "pip", "install", "--quiet", "--python", python, *packages], wanted, "uv")
        return "uv"
    _run([*_empty(wanted, folder), "install", *_PIP_OPTIONS, *packages], wanted, "pip")
    return "pip"


def _install_layer(wanted: Request, folder: Path) -> str:
    """Installs what is asked for above this environment's packages; by pip, which counts those as installed."""
    pip = _empty(wanted, folder)
    (shelf.packages_in(folder) / layers.PATH_FILE).write_text(layers.path_file(), encoding="utf-8")
    held = folder / "constraints.txt"
    held.write_text(layers.constraints(wanted), encoding="utf-8")
    _run([*pip, "install", *_PIP_OPTIONS, "--constraint", str(held), *wanted.requirements], wanted, "pip")
    return "pip"


def _empty(wanted: Request, folder: Path) -> list[str]:
    """Makes an environment without packages, and returns the command of the pip that installs into it."""
    python = str(shelf.python_in(folder))
    if importlib.util.find_spec("pip") is None:
        _run([sys.executable, "-m", "venv", str(folder)], wanted, "venv")
        return [python, "-I", "-m", "pip"]
    # Its own pip would take longer to unpack than most packages.
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], wanted, "venv")
    return [sys.executable, "-I", "-m", "pip", "--python", python]


def _install_node(wanted: Request, folder: Path) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise EnvironmentUnavailableError("npm is not on the path. Next step: install it with Node")
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    # No package may run code of its own while it is installed.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    _run([npm, "install", *options, "--prefix", str(folder), *wanted.requirements], wanted, "npm", cwd=folder)
    return "npm"


def _run(command: Sequence[str], wanted: Request, program: str, cwd: Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED_VARIABLES}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INSTALL_LIMIT_S,
            env=environment,
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailableError(
            f"the environment ({wanted}) cannot be made: {program} took more than {_INSTALL_LIMIT_S:g} s"
        ) from error
    if done.returncode:
        output = f"{done.stdout}\n{done.stderr}"
        unreached = UNREACHABLE.search(output) is not None
        passing = unreached or done.returncode < 0 or _NO_SPACE in output
        raise EnvironmentUnavailableError(_sentence(output, wanted, program), unreached=unreached, lasting=not passing)


def _sentence(output: str, wanted: Request, program: str) -> str:
    words = installers_words(output) or f"{program} said nothing"
    start = f"the environment ({wanted}) cannot be made"
    if UNREACHABLE.search(output):
        return (
            f"{start}: {program} does not reach its package index ({words}). Next step: go online once, then it is "
            f"kept{_PIP_SETTINGS if program == 'pip' else ''}"
        )
    return f"{start}: {program} says: {words}"


def installers_words(output: str) -> str:
    """Returns what an installer complains of, in a line; empty where it says nothing."""
    complaints = [found["words"].strip() for found in _COMPLAINT.finditer(output)]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = next((one for one in complaints if not one.startswith(("code ", "A complete log"))), "")
    return (telling or (lines[-1] if lines else ""))[:300]


_UNWANTED_VARIABLES: Mapping[str, None] = dict.fromkeys(
    ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV", "__PYVENV_LAUNCHER__")
)
"""Of this process, and wrong for another environment's installer."""
