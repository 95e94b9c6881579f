"""Local source files: which ones a name stands on, and their digests. Dotted names arrive, digests leave.

Files are parsed, never imported. "Local" is what a user may edit without a version changing: files under the current
folder, PYTHONPATH, editable installs and our zoo; of installed packages the versions are in the keys instead.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from batch_export.digest import Digest, digest_value
from batch_export.errors import UsageError
from batch_export.sources.file_digests import file_digest
from batch_export.sources.import_names import ImportNames
from batch_export.sources.places import ZOO_PACKAGE, defines, models_dir, resolve_target
from batch_export.sources.search_path import package_folders

PACKAGE = Path(__file__).resolve().parents[1]
_PACKAGE_NAME = "batch_export"
_OF_ENVIRONMENT = frozenset({"bin", "include", "share", "etc", "Scripts", "Lib", "Include", "pyvenv.cfg"})
_LIBRARIES = frozenset({"lib", "lib64"})
"""What Python and installers put into a virtual environment."""


def local_roots() -> tuple[Path, ...]:
    """Returns the folders from which local modules are imported, in import order: the current one, then
    `sys.path`'s.
    """
    found: dict[Path, None] = {}
    for entry in [os.getcwd(), *sys.path]:
        path = Path(os.path.realpath(entry or os.getcwd()))  # links in a circle are no folder, as for an import
        if os.path.isdir(path) and not is_installed(path):
            found[path] = None
    return tuple(found)


@cache
def _installed_folders() -> tuple[str, ...]:
    names = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    names += [*site.getsitepackages(), site.getusersitepackages()]
    names += [os.path.join(name, "lib-dynload") for name in names[:2]]
    return tuple({os.path.realpath(name) for name in names})


def is_installed(path: Path | str) -> bool:
    """Whether the path lies where the standard library or installed packages do, of this environment or another one."""
    text = str(path)
    # Packages of another environment may be on the path (PYTHONPATH, a .pth file); parsing all of torch takes a minute.
    return any(
        text == folder or text.startswith(folder + os.sep) for folder in (*_installed_folders(), *package_folders())
    )


def source_digest(target: str, roots: Sequence[Path], names: ImportNames | None = None) -> Digest:
    """Returns the digest of the local files that the function `target` stands on: its module and all that this imports.

    Args:
        target: a dotted name such as `models.transformers.bert`, as a config writes it.
        roots: folders of local modules, see `local_roots`.
        names: knows what files import; anew if None.

    Raises:
        UsageError: `target` is not a dotted name.
    """
    return LocalSources(roots, names).digest(resolve_target(target)[0])


class LocalSources:
    """Local modules at one moment: each is looked for and read once, however many others import it.

    Args:
        roots: folders of local modules, see `local_roots`.
        names: knows what files import; anew if None.
    """

    def __init__(self, roots: Sequence[Path], names: ImportNames | None = None) -> None:
        self._roots = tuple(roots)
        self._names = names or ImportNames()
        self._known: dict[str, tuple[Path | None, tuple[str, ...]]] = {}
        self._digests: dict[Path, Digest] = {}

    def closure(self, module: str) -> dict[str, Path]:
        """Returns the local modules that importing `module` may import, itself included: name -> file."""
        closure: dict[str, Path] = {}
        todo = [module]
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            path, next_ones = self._module(name)
            if path is not None:
                closure[name] = path
            todo.extend(next_ones)
        return closure

    def digest(self, module: str) -> Digest:
        """Returns the digest of the files of `closure(module)` with their modules' names."""
        return digest_value(sorted((name, self._digest(path)) for name, path in self.closure(module).items()))

    def _module(self, name: str) -> tuple[Path | None, tuple[str, ...]]:
        """A module's file, where it is local, and the names that are imported with it, its package's first."""
        known = self._known.get(name)
        if known is None:
            parent = name.rpartition(".")[0]
            path = None if name == _PACKAGE_NAME else find_module(name, self._roots)
            imported = () if path is None else self._names.of(path, name)
            known = self._known[name] = path, (*((parent,) if parent else ()), *imported)
        return known

    def _digest(self, path: Path) -> Digest:
        found = self._digests.get(path)
        if found is None:
            found = self._digests[path] = file_digest(path)
        return found


def find_module(name: str, roots: tuple[Path, ...]) -> Path | None:
    """Returns the local file of a module, or None when it is installed, built in or nowhere."""
    parts = name.split(".")
    if name == ZOO_PACKAGE or name.startswith(ZOO_PACKAGE + "."):
        return _module_file(models_dir().joinpath(*parts[2:]))
    if parts[0] == _PACKAGE_NAME:
        return _module_file(PACKAGE.joinpath(*parts[1:]))
    for root in roots:
        stem = root.joinpath(*parts)
        found = _module_file(stem)
        if found is not None:
            return found
        if _module_file(root / parts[0]) is not None:
            return None  # this root owns the package, and the package lacks the module
    return None


def refuse_two_builders(model: str, target: str, roots: tuple[Path, ...]) -> None:
    """The zoo's builders are written `models.<module>.<name>`, and a user's module may be called so as well.

    Args:
        model: the name of a user's model.
        target: its builder, as its config writes it.
        roots: folders of local modules.

    Raises:
        UsageError: both define the builder.
    """
    module, name = resolve_target(target)
    written = target.rpartition(".")[0]
    if module == written:
        return
    found = find_module(written, roots)
    if found is None or found.is_relative_to(models_dir()):
        return
    if defines(found.parent if found.name == "__init__.py" else found.with_suffix(""), name):
        raise UsageError(
            f"model {model!r}: {target} is in {found}, and the shipped zoo has a builder of that name. "
            f"Next step: rename your module, or write {module}.{name} for the zoo's"
        )


def _module_file(stem: Path) -> Path | None:
    for path in (stem / "__init__.py", stem.parent / f"{stem.name}.py"):
        if os.path.isfile(path):
            return path
    return None


def is_of_environment(path: Path, roots: Iterable[Path]) -> bool:
    """Returns whether a path is in the virtual environment; a project may lie there too, beside what Python put there.

    Args:
        path: an absolute path.
        roots: folders of local modules.
    """
    if sys.prefix == sys.base_prefix or not path.is_relative_to(sys.prefix):
        return False
    if not any(root.is_relative_to(sys.prefix) and path.is_relative_to(root) for root in roots):
        return True
    first, *rest = (*path.relative_to(sys.prefix).parts, "")
    return first in _OF_ENVIRONMENT or (first in _LIBRARIES and rest[0].startswith("python"))


def relative_name(path: Path, roots: Iterable[Path]) -> str | None:
    """Returns a local file's name relative to the zoo or the innermost root that it is in; None when it is not local.

    Our own package's files are not local in this sense: `Toolchain.own` stands for them.
    """
    zoo = models_dir()
    if path.is_relative_to(zoo):
        return f"{ZOO_PACKAGE}/{path.relative_to(zoo).as_posix()}"
    homes = [root for root in roots if path.is_relative_to(root) and len(root.parts) > 1]
    if not homes or is_of_environment(path, homes) or is_installed(path) or path.is_relative_to(PACKAGE):
        return None
    return path.relative_to(max(homes, key=lambda root: len(root.parts))).as_posix()
