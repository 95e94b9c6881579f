"""Which releases of a package there are: those that pip's index has for this Python, as pip is configured.

A package's name and a range as somebody types it (`5.20..5.23`) arrive, versions leave. Nothing is installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from batch_export.environments.making import UNREACHABLE, EnvironmentUnavailableError, installers_words
from batch_export.errors import UsageError
from batch_export.words import did_you_mean, nearest

RANGE = "5.20..5.23"
"""How a range looks."""
_ASK_LIMIT_S = 180.0
_PATIENCE = ("--retries", "2", "--timeout", "20")
_LISTED = re.compile(r"^Available versions: (?P<versions>.+)$", re.MULTILINE)
_UNFETCHED = re.compile(r"Could not fetch URL (?P<place>\S+): (?P<why>.+) - skipping")
"""What pip says with `-vv` of a page that it did not get, before it goes by what else it has."""
_CAUSE = re.compile(r"Caused by \w+\(['\"]?(?:.*?>: )?(?P<words>[^'\"]+)")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def releases_between(package: str, text: str, *, pre: bool = False) -> tuple[str, ...]:
    """Returns a package's releases in a range, oldest first, both ends included.

    `5.23` as the later end stands for 5.23.1 too; an end that is left out for the oldest or the newest release.

    Args:
        package: its name in the index.
        text: `5.20..5.23`.
        pre: whether releases that are not final (`5.24.0rc1`) count.

    Raises:
        UsageError: no such package or release, or the range holds fewer than two.
        EnvironmentUnavailableError: the index is out of reach, or there is no pip.
    """
    early, dots, late = text.partition("..")
    if not dots or not (early or late) or late.startswith("."):
        raise UsageError(f"{text!r} is not a range of releases; write it as in {RANGE!r}, or '5.20..' to the newest")
    first, last = (_version(end, text) if end else None for end in (early, late))
    if first is not None and last is not None and first >= last:
        raise UsageError(f"The range {text!r} must go from an earlier release to a later one")
    known = _listed(package, pre=pre)
    for end in filter(None, (first, last)):
        if not any(_is_of(one, end) for one in known):
            raise UsageError(_no_release(package, end, known))
    found = [
        one for one in known if (first is None or one >= first) and (last is None or one <= last or _is_of(one, last))
    ]
    if len(found) < 2:
        raise UsageError(
            f"Between {early or 'its first release'} and {late or 'its newest'} {package} has the one release "
            f"{found[0]}, so there is nothing to search. Next step: give a wider range"
        )
    return tuple(map(str, found))


def _listed(package: str, *, pre: bool) -> list[Version]:
    if not _NAME.fullmatch(package):
        raise UsageError(f"{package!r} is not the name of a package; write it as pip takes it, such as transformers")
    if importlib.util.find_spec("pip") is None:
        raise EnvironmentUnavailableError(
            "releases are listed by pip, which this environment does not have. "
            f"Next step: `{sys.executable} -m ensurepip`"
        )
    words = [sys.executable, "-I", "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    words += ["--no-input", "-vv", *_PATIENCE, *(["--pre"] if pre else [])]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailableError(
            f"pip did not list the releases of {package} within {_ASK_LIMIT_S:g} s"
        ) from error
    unfetched = next((one for one in _UNFETCHED.finditer(done.stdout) if " 404 " not in f" {one['why']} "), None)
    listed = _LISTED.search(done.stdout)
    said = installers_words(done.stderr)
    if unfetched is not None or (listed is None and UNREACHABLE.search(done.stderr)):
        where = f"{unfetched['place']}: {_cause(unfetched['why'])}" if unfetched is not None else said
        raise EnvironmentUnavailableError(
            f"pip does not reach its package index ({where}), so nobody knows which releases of {package} there are. "
            "Next step: go online, set another index (PIP_INDEX_URL), or have pip look into the folders of "
            "PIP_FIND_LINKS alone (PIP_NO_INDEX=1)",
            unreached=True,
        )
    if listed is None:
        if "No matching distribution" not in done.stderr:
            raise EnvironmentUnavailableError(f"pip cannot list the releases of {package}: {said or 'it said nothing'}")
        hint = did_you_mean(package, _installed())
        raise UsageError(f"pip's index has no release of a package {package!r} for this Python{hint}")
    return sorted(_readable(listed["versions"].split(", ")))


def _cause(text: str) -> str:
    """What is at the bottom of urllib3's words about a connection."""
    found = _CAUSE.search(text)
    return (found["words"] if found is not None else text).rstrip(")")[:200]


def _readable(texts: Sequence[str]) -> list[Version]:
    found: list[Version] = []
    for text in texts:
        try:
            found.append(Version(text.strip()))
        except InvalidVersion:
            continue  # of the time before PEP 440; pip would not install it
    return found


def _version(text: str, whole: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise UsageError(f"{text!r} in {whole!r} is not a version; write the range as in {RANGE!r}") from error


def _is_of(release: Version, end: Version) -> bool:
    """Whether a release is the one that was typed, or of its line: 5.23.1 is of 5.23."""
    if end.is_prerelease or end.is_postrelease:
        return release == end
    return release.release[: len(end.release)] == end.release or release == end


def _no_release(package: str, end: Version, known: Sequence[Version]) -> str:
    texts = [str(one) for one in reversed(known)]
    near = nearest(str(end), texts) or texts[:3]
    return f"{package} has no release {end}; nearest: {', '.join(near)}, newest: {texts[0]}"


def _installed() -> set[str]:
    return {one.name for one in importlib.metadata.distributions()}
