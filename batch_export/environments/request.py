"""What an environment is asked to hold, and the key under which it is kept.

Requirements as a config writes them arrive; a frozen `Request` leaves. A requirement that names a local folder or file
stands for its content. Nothing is installed or looked for here.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batch_export.digest import digest_file, digest_value
from batch_export.errors import UsageError

Language = Literal["python", "node"]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NODE_NAME = re.compile(r"(?:@[\w.~-]+/)?[\w.~-]+")
_FILE_URL = "file://"
_SKIPPED_FOLDERS = frozenset({"__pycache__", "build", ".git"})
_SKIPPED_SUFFIXES = (".pyc", ".egg-info")


@dataclass(frozen=True, slots=True)
class Request:
    """An environment that somebody needs.

    Attributes:
        requirements: sorted; of Python as pip takes them, of Node as npm does (`onnxruntime-node@1.30.0`).
        language: who runs in it.
        interpreter: version of the Python that it is made with, or of Node.
        below: digest of the environment that it lies over, see `layers.py`; empty: it stands alone.
    """

    requirements: tuple[str, ...]
    language: Language = "python"
    interpreter: str = ""
    below: str = ""

    @property
    def key(self) -> str:
        """What it is kept under: requirements, the content of local ones, interpreter and machine."""
        local = {text: _content(path) for text in self.requirements if (path := local_path(text)) is not None}
        place = [self.language, self.interpreter, platform.system(), platform.machine(), *platform.libc_ver()]
        return digest_value([list(self.requirements), local, place, *([self.below] if self.below else [])])

    @property
    def label(self) -> str:
        """The first requirement's name."""
        return requirement_name(self.requirements[0], self.language) if self.requirements else "empty"

    @property
    def folder_name(self) -> str:
        """What its folder is called."""
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', self.label).strip('-')}-{self.key[:12]}"

    def __str__(self) -> str:
        return ", ".join(self.requirements)


def request(requirements: Sequence[str], language: Language = "python", below: str = "") -> Request:
    """Returns the request that a list of requirements is; `below` as `Request` has it.

    Raises:
        UsageError: one of them cannot be meant, or two ask for the same package.
    """
    seen: dict[str, str] = {}
    for text in requirements:
        name = requirement_name(text, language)
        normal = normal_name(name)
        if normal in seen:
            raise UsageError(
                f"An environment asks for {name} twice: {seen[normal]!r} and {text!r}. Next step: keep one of them"
            )
        seen[normal] = text
    words = tuple(sorted(_absolute(text.strip()) for text in requirements))
    return Request(words, language, platform.python_version() if language == "python" else "", below)


def normal_name(name: str) -> str:
    """Returns a package's name as comparisons use it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def replaced(requirements: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Returns requirements with others in place of those about the same packages.

    Raises:
        UsageError: one of them cannot be meant.
    """
    names = {normal_name(requirement_name(text)) for text in others}
    kept = (text for text in requirements if normal_name(requirement_name(text)) not in names)
    return (*kept, *others)


def requirement_name(text: str, language: Language = "python") -> str:
    """Returns the package that a requirement is about.

    Raises:
        UsageError: it is none; options of pip or npm are none either.
    """
    stripped = text.strip()
    path = local_path(stripped)
    found = (_NAME if language == "python" else _NODE_NAME).match(stripped)
    if path is not None and " @ " not in stripped:
        return path.name
    is_meant = found is not None and not stripped.startswith("-") and "\n" not in stripped
    if found is None or not is_meant or (language == "python" and not _is_pythons(stripped)):
        example = "openvino==2026.4.*" if language == "python" else "onnxruntime-node@1.30.0"
        raise UsageError(f"An environment's requirement {text!r} does not name a package; write it as in {example!r}")
    return found.group()


def _is_pythons(text: str) -> bool:
    """Whether pip takes a requirement; an address is looked at when it is installed."""
    from packaging.requirements import InvalidRequirement, Requirement  # lazy: few runs have environments

    try:
        return "://" in text or bool(Requirement(text))
    except InvalidRequirement:
        return False


def local_path(text: str) -> Path | None:
    """Returns the folder or file that a requirement names, or None where it names a package of an index."""
    place = text.rpartition(" @ ")[2].strip()
    if place.startswith(_FILE_URL):
        return Path(place.removeprefix(_FILE_URL))
    return Path(place) if place.startswith(("/", "./", "../", "~")) else None


def _absolute(text: str) -> str:
    path = local_path(text)
    if path is None or _FILE_URL in text:
        return text
    return str(path.expanduser().absolute())


def _content(path: Path) -> str:
    """A digest of a local package's files; empty where there is none, which is told when it is installed."""
    if path.is_file():
        return digest_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_derived(file.relative_to(path)))
    return digest_value([(file.relative_to(path).as_posix(), digest_file(file)) for file in files])


def _is_derived(file: Path) -> bool:
    return any(part in _SKIPPED_FOLDERS or part.endswith(_SKIPPED_SUFFIXES) for part in file.parts)
