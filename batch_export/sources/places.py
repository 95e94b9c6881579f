"""Where the shipped configs and the model zoo lie: beside the package in a checkout, inside the package in a wheel.

Names go in, paths and importable names come out. Nothing is imported, created or cached on disk here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from batch_export.errors import UsageError

ZOO_PACKAGE = "batch_export.zoo"
"""The zoo's importable name, in a checkout (where `zoo.py` points it at `models/`) and in a wheel alike."""

_WRITTEN_PREFIX = "models."
_PACKAGE = Path(__file__).resolve().parents[1]


def conf_dir() -> Path:
    """The folder that holds `config.yaml` and the config groups."""
    root = _checkout()
    return _PACKAGE / "conf" if root is None else root / "conf"


def models_dir() -> Path:
    """The folder that holds the zoo's builders."""
    root = _checkout()
    return _PACKAGE / "zoo" if root is None else root / "models"


def resolve_target(name: str) -> tuple[str, str]:
    """Splits a `_target_` into the module to import and the attribute to take from it.

    A target written as `models.<module>.<name>` is the zoo's, under `batch_export.zoo`, when the zoo defines that name:
    so neither an installed wheel, which has no top-level `models`, nor a user's own `models/` folder changes what a
    shipped config means. Every other name is taken as it stands.

    Raises:
        UsageError: `name` is not a dotted name.
    """
    module, _, attribute = name.rpartition(".")
    if not module or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"_target_ {name!r} is not the dotted name of a function, such as 'my_models.tiny'. "
            "Next step: put the function at the top level of a module and name it <module>.<function>"
        )
    if name.startswith(_WRITTEN_PREFIX):
        inner = module.removeprefix(_WRITTEN_PREFIX)
        if attribute in _top_level_names(models_dir().joinpath(*inner.split("."))):
            return f"{ZOO_PACKAGE}.{inner}", attribute
    return module, attribute


def defines(stem: Path, name: str) -> bool:
    """Whether the module at `stem` (a file without its ending, or a package) binds a name at its top level."""
    return name in _top_level_names(stem)


@cache
def _checkout() -> Path | None:
    root = _PACKAGE.parent
    inside = (root / "pyproject.toml").is_file() and (root / "conf" / "config.yaml").is_file()
    return root if inside and (root / "models").is_dir() else None


@cache
def _top_level_names(stem: Path) -> frozenset[str]:
    """Names that the module at `stem` (a file or a package) binds at its top level; parsed, not imported."""
    names: set[str] = set()
    for path in (stem / "__init__.py", stem.with_suffix(".py")):
        if not path.is_file():
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        break
    return frozenset(names)
