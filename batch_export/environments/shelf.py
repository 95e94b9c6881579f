"""The folder in which environments are kept: what is there, whether it is whole, and what it holds.

One folder an environment: `environment.json` is written last, so that one without it is half-made, or holds
`refused.json` alone. Its packages are
listed when it is made and again when it is used; one that somebody changed is not used. Nothing is installed here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from batch_export.digest import digest_file, digest_value
from batch_export.environments.request import Language, Request
from batch_export.errors import UsageError
from batch_export.files import cache_folder, whole_file

ROOT_VARIABLE = "BATCH_EXPORT_ENVIRONMENTS"
MARKER = "environment.json"
REFUSED = "refused.json"
"""In place of an environment: why the installer refused to make it."""
PROBES = "probes.json"
NODE_MODULES = "node_modules"

_UNCOUNTED = frozenset({"pip", "setuptools", "wheel", "uv"})


@dataclass(frozen=True, slots=True)
class Made:
    """What its folder says of a whole environment.

    Attributes:
        requirements, language, interpreter: what it was asked for.
        content: what it holds, `name==version` each; of a package installed from a local folder with a digest as well.
        maker: the program that installed into it.
        seconds: how long making it took.
        below: as `Request` has it.
    """

    requirements: tuple[str, ...]
    language: Language
    interpreter: str
    content: tuple[str, ...]
    maker: str = ""
    seconds: float = 0.0
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Made):
    """An environment that is there.

    Attributes:
        folder: where it is.
    """

    folder: Path

    @property
    def name(self) -> str:
        """What it is called: `openvino-3f2a...`."""
        return self.folder.name

    @property
    def program(self) -> Path:
        """The Python that runs in it (not of a Node environment)."""
        return python_in(self.folder)

    @property
    def packages(self) -> Path:
        """The folder that its own packages lie in (not of a Node environment)."""
        return packages_in(self.folder)

    @property
    def resolved(self) -> str:
        """What results that come from it depend on, as one line."""
        return "; ".join((f"{self.language} {self.interpreter}", *self.content))


def root() -> Path:
    """Returns the folder of all environments: that of BATCH_EXPORT_ENVIRONMENTS, or `batch_export/environments` in the
    user's cache folder. It may not exist.
    """
    return cache_folder(ROOT_VARIABLE, "environments")


def folder_of(wanted: Request) -> Path:
    """Returns where an environment is, or would be."""
    return root() / wanted.folder_name


def found(wanted: Request) -> Environment | None:
    """Returns the environment asked for if it is there and whole."""
    environment = opened(folder_of(wanted))
    return environment if environment is not None and not damage(environment) else None


def opened(folder: Path) -> Environment | None:
    """Returns the environment of a folder; None when it is half-made or none."""
    try:
        made = msgspec.json.decode((folder / MARKER).read_bytes(), type=Made)
    except (OSError, msgspec.MsgspecError):
        return None
    return Environment(folder=folder, **asdict(made))


def damage(environment: Environment) -> str:
    """Returns what is wrong with an environment, as a sentence; empty when nothing is."""
    if environment.language == "python" and not os.access(environment.program, os.X_OK):
        return f"its interpreter {environment.program} is gone"
    now = content(environment.folder, environment.language)
    if now != environment.content:
        changed = sorted(set(now).symmetric_difference(environment.content))
        return f"its packages are not those that it was made with ({', '.join(changed[:4])})"
    return ""


def finish(folder: Path, wanted: Request, interpreter: str, maker: str, seconds: float) -> Environment:
    """Marks an environment as whole and returns it."""
    holds = content(folder, wanted.language)
    made = Made(wanted.requirements, wanted.language, interpreter, holds, maker, seconds, wanted.below)
    with whole_file(folder / MARKER) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(made), indent=1))
    whole = opened(folder)
    assert whole is not None
    return whole


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why an environment could not be made, and a digest of pip's settings at that time."""

    reason: str
    settings: str = ""


def keep_refusal(folder: Path, reason: str) -> None:
    """Keeps why an environment could not be made; where that cannot be written, it is tried again each time."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / REFUSED) as stream:
            stream.write(msgspec.json.encode(_Refusal(reason, _pip_settings())))


def refusal(folder: Path) -> str:
    """Returns why an environment could not be made; empty where none was tried, or pip's settings are others now."""
    try:
        kept = msgspec.json.decode((folder / REFUSED).read_bytes(), type=_Refusal)
    except (OSError, msgspec.MsgspecError):
        return ""
    return kept.reason if kept.settings == _pip_settings() else ""


def _pip_settings() -> str:
    return digest_value(sorted((name, value) for name, value in os.environ.items() if name.startswith("PIP_")))


def all_environments() -> list[tuple[Path, Environment | None]]:
    """Returns every folder with its environment, None for the half-made ones, by name."""
    try:
        folders = sorted(entry for entry in root().iterdir() if entry.is_dir())
    except OSError:
        return []
    return [(folder, opened(folder)) for folder in folders]


def named(name: str) -> Path:
    """Returns the folder of the environment that a name means: its own, or what it begins with if only one does.

    Raises:
        UsageError: none is called so, or several are.
    """
    folders = {folder.name: environment for folder, environment in all_environments()}
    if name in folders:
        return root() / name
    matching = [one for one in folders if one.startswith(name)]
    if len(matching) == 1:
        return root() / matching[0]
    if not matching:
        there = f"there are {', '.join(folders)}" if folders else f"{root()} holds none"
        raise UsageError(f"No environment is called {name!r}; {there}")
    raise UsageError(
        f"{len(matching)} environments are called {name!r}: "
        + "; ".join(f"{one} ({_asked(folders[one])})" for one in matching)
        + ". Next step: give more of the name"
    )


def remove(folder: Path) -> None:
    """Removes an environment; its marker goes first, so that it is half-made from then on.

    Raises:
        UsageError: the system does not let it go.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            (folder / MARKER).unlink()
        shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(f"The environment {folder} cannot be removed: {error.strerror or error}") from error


@contextlib.contextmanager
def held(wanted: Request) -> Iterator[None]:
    """Lets one process at a time make an environment; the lock ends with the process."""
    folder = root()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / f".{wanted.folder_name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if sys.platform != "win32":
            import fcntl  # lazy: the module exists on POSIX only

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def python_in(folder: Path) -> Path:
    """Returns the interpreter of a Python environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def packages_in(folder: Path) -> Path:
    """Returns where a Python environment keeps its packages."""
    names = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", sysconfig.get_preferred_scheme("prefix"), names))


def content(folder: Path, language: Language) -> tuple[str, ...]:
    """Returns what an environment holds, read from the packages' own metadata, sorted."""
    return _node_packages(folder / NODE_MODULES) if language == "node" else _distributions(folder)


def _distributions(folder: Path) -> tuple[str, ...]:
    found: set[str] = set()
    for metadata in folder.glob("lib*/python*/site-packages/*.dist-info"):
        name, _, version = metadata.name.removesuffix(".dist-info").partition("-")
        if name.lower() in _UNCOUNTED:
            continue
        local = metadata / "direct_url.json"  # a version says nothing of what came from a folder
        files = f" {_installed(metadata)[:16]}" if local.is_file() else ""
        found.add(f"{name.replace('_', '-').lower()}=={version}{files}")
    return tuple(sorted(found))


def _installed(metadata: Path) -> str:
    """A digest of what a package installed: its record, without what pip writes anew each time."""
    lines = (metadata / "RECORD").read_text(encoding="utf-8").splitlines() if (metadata / "RECORD").is_file() else []
    own = [line for line in lines if not line.startswith(("..", metadata.name)) and ".pyc," not in line]
    return digest_value(sorted(own))


def _node_packages(modules: Path) -> tuple[str, ...]:
    found: list[str] = []
    for manifest in sorted([*modules.glob("*/package.json"), *modules.glob("@*/*/package.json")]):
        try:
            package = msgspec.json.decode(manifest.read_bytes())
            found.append(f"{package['name']}@{package['version']}")
        except (OSError, msgspec.MsgspecError, KeyError, TypeError):
            found.append(f"{manifest.parent.name}@unreadable {digest_file(manifest)[:16]}")
    return tuple(sorted(found))


def _asked(environment: Environment | None) -> str:
    return "half-made" if environment is None else ", ".join(environment.requirements)
