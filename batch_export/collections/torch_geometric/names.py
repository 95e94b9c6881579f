"""The names of torch_geometric's models, read from its files without importing it.

Nothing arrives; names leave, each tagged with the module that it is in.
"""

from __future__ import annotations

import ast
from pathlib import Path

from batch_export.collections.small_models import package_files


def names(package: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Returns the names of the models with their tags, sorted.

    Args:
        package: the folder of the package; the installed one if None.
    """
    file = (package or package_files.folder("torch_geometric")).joinpath("nn", "models", "__init__.py")
    modules = {name: module for module, name in package_files.names_imported(file)}
    return {name: (modules[name],) for name in sorted(_offered(file)) if name in modules and name[:1].isupper()}


def _offered(file: Path) -> set[str]:
    for node in ast.parse(package_files.text(file)).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return set(ast.literal_eval(node.value))
    return set()
