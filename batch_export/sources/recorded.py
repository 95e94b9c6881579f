"""Whether what a stored result was seen to use is still as it was: files, folders' listings, packages, variables.

A result arrives, short texts on what has changed leave. A child records (`runner/evidence.py`); this is how everyone
checks. Nothing is executed or imported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from batch_export.action import ActionResult
from batch_export.digest import Digest, digest_value
from batch_export.sources import distributions, path_shape, pythons_variables, run_folders, start_up
from batch_export.sources.asked import ABSENT, state_now
from batch_export.sources.file_digests import BYTECODE_SUFFIXES, LEFT_BEHIND_SUFFIXES, content_digest, is_side_file
from batch_export.sources.module_forms import ModuleStates, is_found, is_of_module
from batch_export.sources.name_texts import name_of
from batch_export.sources.places import ZOO_PACKAGE, models_dir

UNREADABLE = "unreadable"
CHANGED = "changed while it was read"
"""In place of the digest of a file of which nobody can say what was read: no later state equals it."""
PASSING = "is a pipe or a device, of which nobody can read again what was read"
"""Likewise, in place of the digest of what is no file."""
METADATA_OF = f"*.dist-info{os.sep}"
"""Ends the name of a folder, after its separator, of which only the distributions count whose metadata is there."""

BESIDE = "beside//"
"""Begins the name of what lies in a later root, which is found by a module there: `beside//package/sop//data/w.txt`."""
_IN_ITS_ROOT = "//"
IN_ROOT = "root//"
"""Begins the name of what lies in a later root in which no module was found: `root//2//assets/w.txt`, by its place."""
PATH = "PYTHONPATH//"
"""The name under which is recorded what the path itself is made of, see `path_shape.py`."""
MODULES_OF = f"*.py{os.sep}"
"""Ends the name of a folder, after its separator, of which only the modules count that an import finds there."""

ALL_VARIABLES = "*"
"""The name under which the whole environment is recorded, for a model that went through all of it."""
CURRENT_FOLDER = "="
"""The name, which no variable can have, under which the current folder is recorded, for a model that asked for it."""
_TOOLS = """
__pycache__ .git .hg .svn .gitignore .gitattributes .DS_Store .directory .cache .pytest_cache .mypy_cache .ruff_cache
.hypothesis .nox .tox .venv .idea .vscode .ipynb_checkpoints .coverage .python-version .envrc .hydra
"""
_OF_TOOLS = frozenset(_TOOLS.split())
"""What editors, shells, tests and version control leave in a folder, none of it for a model."""
_OF_MODULES = frozenset({*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES, ".so"})
_UNLISTED = (*BYTECODE_SUFFIXES, *LEFT_BEHIND_SUFFIXES, "~", ".swp", ".swo", ".swx")
_BEGIN_OF_TOOLS = (".nfs", ".~", ".#", ".coverage.", ".fuse_hidden", ".goutputstream-")
_SESSION = """
PATH PWD OLDPWD SHLVL _ TERM COLORTERM COLUMNS LINES NO_COLOR FORCE_COLOR TMPDIR TEMP TMP LANG LANGUAGE LC_ALL
LC_CTYPE LC_MESSAGES HOSTNAME SSH_AUTH_SOCK SSH_CLIENT SSH_CONNECTION SSH_TTY TMUX TMUX_PANE STY WINDOWID DISPLAY
DBUS_SESSION_BUS_ADDRESS WAYLAND_DISPLAY XAUTHORITY XDG_SESSION_ID XDG_SESSION_TYPE XDG_SESSION_CLASS
XDG_SESSION_DESKTOP XDG_CURRENT_DESKTOP XDG_RUNTIME_DIR XDG_SEAT XDG_VTNR GPG_AGENT_INFO GPG_TTY SHELL LS_COLORS
EDITOR VISUAL PAGER LESS LESSOPEN LESSCLOSE HISTFILE HISTSIZE HISTCONTROL PROMPT_COMMAND PS2 PS4 INVOCATION_ID
JOURNAL_STREAM VIRTUAL_ENV VIRTUAL_ENV_PROMPT PS1 PYTEST_CURRENT_TEST PYTEST_VERSION PYTEST_XDIST_WORKER
PYTEST_XDIST_WORKER_COUNT PYTEST_XDIST_TESTRUNUID PYTHONPATH PYTHONHASHSEED PYTHONUNBUFFERED OMP_NUM_THREADS
OPENBLAS_NUM_THREADS MKL_NUM_THREADS KMP_INIT_AT_FORK TOKENIZERS_PARALLELISM
"""
_VARIABLES = {
    ALL_VARIABLES: "environment variable (any: all were read) has another value",
    CURRENT_FOLDER: "the current folder, whose name was asked for, is another one",
}
_OF_TERMINALS = "TERM_PROGRAM VSCODE_ ITERM_ KITTY_ WEZTERM_ ALACRITTY_ KONSOLE_ GNOME_TERMINAL_ VTE_ WT_ LC_TERMINAL"
_OF_THE_SESSION = frozenset(_SESSION.split())
"""Environment variables that tell of a terminal or a session, or that children have set for them."""
_OF_CHILDREN = """
PATH PYTHONPATH PYTHONHASHSEED PYTHONUNBUFFERED OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS KMP_INIT_AT_FORK
TOKENIZERS_PARALLELISM
"""
_IN_NO_RECORD = frozenset(_OF_CHILDREN.split())
"""Those of them that never count; the others do where the user's own code asks for one by its name."""


def changes(result: ActionResult, roots: Sequence[Path], store: Path) -> Iterator[str]:
    """Yields what is no longer as the action saw it; nothing when its result may be used.

    Args:
        result: with what its action was seen to use.
        roots: folders of local modules.
        store: the store that the result lies in.
    """
    for name, digest in result.sources:
        now = current_digest(name_of(name), roots, store)
        if now != digest and name == PATH:
            yield "the folders or archives on PYTHONPATH are others"
        elif now != digest:
            yield f"{'folder' if name.endswith(os.sep) else 'file'} {_shown(name)} {_told(digest, now)}"
    modules = ModuleStates(roots)
    for name, state in result.asked:
        place = name_of(name)
        found = modules.of(place) if is_of_module(state) else state_now(_place(place, roots), state)
        if found != state:
            yield f"{_shown(name)}: {state} -> {found}"
    if result.packages and not _all_as(result.packages, distributions.path_stamp()):
        for name, state in result.packages:
            present = distributions.state(name)
            if present != state:
                yield f"{_called(name)}: {distributions.told(state, present)}"
    for name, digest in _variables(result):
        if variable_digest(name_of(name), os.environ, os.curdir) != digest:
            yield _VARIABLES.get(name, f"environment variable {name} has another value")


def beside(module: str, name: str) -> str:
    """Returns the name of what lies in the root that a module is found in.

    Args:
        module: as a path without an ending, relative to that root.
        name: relative to that root.
    """
    return f"{BESIDE}{module}{_IN_ITS_ROOT}{name}"


def in_root(place: int, name: str) -> str:
    """Returns the name of what lies in a root that is known by its place among them.

    Args:
        place: of the root.
        name: relative to that root.
    """
    return f"{IN_ROOT}{place}{_IN_ITS_ROOT}{name}"


def _shown(name: str) -> str:
    if name.startswith(IN_ROOT):
        place, _, own = name.removeprefix(IN_ROOT).partition(_IN_ITS_ROOT)
        return f"{own} in root {place} of the path"
    if not name.startswith(BESIDE):
        return name
    module, _, own = name.removeprefix(BESIDE).partition(_IN_ITS_ROOT)
    return f"{own} beside {module}"


def _variables(result: ActionResult) -> Iterator[tuple[str, Digest]]:
    """What is recorded of variables; of Python's own a step that ran the model has recorded the unusual ones only."""
    yield from result.variables
    if start_up.NAMES[0] in dict(result.packages):
        recorded = dict(result.variables)
        for name in pythons_variables.unusual(os.environ):
            if name not in recorded:
                yield name, variable_digest(name, {}, os.curdir)


def _called(package: str) -> str:
    if package in start_up.NAMES:
        return f"what starts with Python, {package.removeprefix(start_up.PREFIX)}"
    told = "(any: all were listed)" if package == distributions.ALL else package
    return f"package {told.removeprefix(distributions.WITHOUT_METADATA).removeprefix(distributions.FORM)}"


def _told(before: str, now: str) -> str:
    if before in (CHANGED, PASSING):
        return before
    if ABSENT in (before, now):
        return "is new" if before == ABSENT else "is gone"
    return "is no longer readable" if now == UNREADABLE else "has changed"


@cache
def _all_as(packages: tuple[tuple[str, str], ...], stamp: tuple[tuple[str, int], ...]) -> bool:
    """Whether all have that state; most of a store's results name the same ones."""
    del stamp  # it is there for the cache
    if any(" " in state for _, state in packages):
        return False  # a digest of files is part of it; these may change without anything being installed
    return all(distributions.state(name) == state for name, state in packages)


def is_of_session(name: str) -> bool:
    """Whether a variable tells of a terminal or a session, or is set for children."""
    return name in _OF_THE_SESSION or name.startswith(tuple(_OF_TERMINALS.split()))


def never_counts(name: str) -> bool:
    """Whether a variable is in no record, whoever reads it."""
    return name in _IN_NO_RECORD


def variable_digest(name: str, environment: Mapping[str, str], folder: str) -> Digest:
    """Returns what stands for a variable's value, which may be a secret, or for the name of the current folder."""
    if name == CURRENT_FOLDER:
        return digest_value([name, os.path.realpath(folder)])
    if name in pythons_variables.NAMES:
        return digest_value([name, pythons_variables.value(name, environment) or None])
    if name != ALL_VARIABLES:
        return digest_value([name, environment.get(name)])
    names = sorted(name for name in environment if not is_of_session(name))
    return digest_value([(one, environment[one]) for one in names])


def current_digest(name: str, roots: Sequence[Path], store: Path) -> str:
    """Returns the present digest of a file, of a folder's listing (a separator ends the name), or of its metadata."""
    if name == PATH:
        return path_shape.shape(roots)
    path = first_of(name.removesuffix(METADATA_OF).removesuffix(MODULES_OF), roots)
    if path is None:
        return ABSENT
    try:
        if name.endswith(METADATA_OF):
            return metadata_digest(path)
        if name.endswith(MODULES_OF):
            return modules_digest(path)
        return listing_digest(path, (store,)) if name.endswith(os.sep) else content_digest(path)
    except OSError:
        return UNREADABLE


def first_of(name: str, roots: Sequence[Path]) -> Path | None:
    """Returns the file or folder of that name: in the zoo, by its absolute path, or in the first root that has it.

    What is no module was opened by its place, not looked for: it is in the first root or nowhere.
    """
    kind = stat.S_ISDIR if name.endswith(os.sep) else stat.S_ISREG
    return next((path for path in map(Path, _candidates(name, roots)) if kind(_mode(path))), None)


def is_of_modules(name: str) -> bool:
    """Whether a path is one that an import may look for in each root."""
    return os.path.splitext(name)[1] in _OF_MODULES


def _candidates(name: str, roots: Sequence[Path]) -> list[str]:
    if name.startswith(ZOO_PACKAGE + "/"):
        return [os.path.join(models_dir(), name.removeprefix(ZOO_PACKAGE + "/"))]
    if os.path.isabs(name):
        return [name]
    if name.startswith(IN_ROOT):
        place, _, own = name.removeprefix(IN_ROOT).partition(_IN_ITS_ROOT)
        known = [root for root in roots if len(root.parts) > 1]
        return [os.path.join(root, own) for root in known[int(place) : int(place) + 1]]
    if name.startswith(BESIDE):
        module, _, own = name.removeprefix(BESIDE).partition(_IN_ITS_ROOT)
        home = ModuleStates(roots).home(module)
        return [] if home is None else [os.path.join(home, own)]
    return [os.path.join(root, name) for root in (roots if is_of_modules(name) else roots[:1])]


def _place(name: str, roots: Sequence[Path]) -> str:
    """Where that name is in the first root that has anything of it; in the last one, if none has."""
    candidates = _candidates(name, roots)
    return next((one for one in candidates if os.path.lexists(one)), candidates[-1] if candidates else name)


def is_first(name: str, path: str, roots: Sequence[Path]) -> bool:
    """Whether the name leads to that path, or nowhere as that of a module that no root has."""
    place = _place(name, roots)
    return place == path or (is_of_modules(name) and not os.path.lexists(place))


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def listing_digest(folder: Path, avoided: Sequence[Path]) -> Digest:
    """Returns the digest of what a folder's listing tells: names, and which are folders or links.

    Raises:
        OSError: the folder cannot be listed.
    """
    real = Path(os.path.realpath(folder))
    aside = _aside(real, avoided)
    with os.scandir(real) as entries:  # a way with as many links as may be followed leads no further
        found = [(one.name, *_form(one)) for one in entries if _is_listed(one.name, one.path, aside)]
    return digest_value(sorted(found))


def is_listed(folder: Path, name: str, avoided: Sequence[Path]) -> bool:
    """Returns whether a name counts in a folder's listing.

    Caches, logs, what tools leave behind and what leads to one of `avoided` do not.

    Args:
        folder: without links.
        name: of something in it.
        avoided: folders.
    """
    return _is_listed(name, os.path.join(folder, name), _aside(folder, avoided))


def _is_listed(name: str, path: str, aside: Container[str]) -> bool:
    if name in _OF_TOOLS or name.startswith(_BEGIN_OF_TOOLS) or name.endswith(_UNLISTED):
        return False
    return name not in aside and not is_side_file(path) and not run_folders.is_of_runs(path)


def _aside(folder: Path, avoided: Sequence[Path]) -> set[str]:
    """The names in a folder that lead to one of several folders."""
    inside = (one.relative_to(folder).parts[:1] for one in map(Path.resolve, avoided) if one.is_relative_to(folder))
    return {part for parts in inside for part in parts}


def _form(entry: os.DirEntry[str]) -> tuple[bool | str, bool]:
    """Whether it is a folder, and whether it is a link; of one that leads where nobody can ask, what it says."""
    try:
        return entry.is_dir(), entry.is_symlink()
    except OSError:  # links in a circle, or through a folder that may not be entered
        try:
            return os.readlink(entry.path), True
        except OSError:
            return UNREADABLE, False


def metadata_digest(folder: Path) -> Digest:
    """Returns the digest of the names of the distributions whose metadata is in a folder."""
    return digest_value(sorted(name for name in os.listdir(folder) if name.endswith(distributions.METADATA_SUFFIXES)))


def modules_digest(folder: Path) -> Digest:
    """Returns the digest of the names of the modules and packages that an import finds in a folder."""
    states = ModuleStates([folder])
    names = {os.path.splitext(name)[0].partition(".")[0] for name in os.listdir(folder)}
    return digest_value(sorted(state for name in names if is_found(state := states.of(name))))
