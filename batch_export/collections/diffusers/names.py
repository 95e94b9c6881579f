"""The names of diffusers' model classes, read from its files without importing it.

Nothing arrives; names leave, each tagged with the kind of model that its module is among: `unets`, `transformers`,
`autoencoders`, `controlnets`, ...
"""

from __future__ import annotations

import ast
from pathlib import Path

from batch_export.collections.small_models import package_files

_STRUCTURE = "_import_structure"
_MODULES = ("ModelMixin", "Module", "Model")
"""What the name of a base of a model ends with."""


def names(package: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Returns the names of the models with their tags, sorted.

    Args:
        package: the folder of the package; the installed one if None.
    """
    models = (package or package_files.folder("diffusers")) / "models"
    found: dict[str, tuple[str, ...]] = {}
    for module, classes in _listed(package_files.text(models / "__init__.py")):
        for name in classes:
            bases = package_files.bases(models.joinpath(*module.split(".")).with_suffix(".py"), name)
            if any(base.endswith(_MODULES) for base in bases or ()):
                found.setdefault(name, (module.partition(".")[0],))
    return dict(sorted(found.items()))


def _listed(text: str) -> list[tuple[str, list[str]]]:
    """Modules with the names that they offer, as the package's table of lazy imports has them."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == _STRUCTURE:
            found.append((str(ast.literal_eval(target.slice)), [str(one) for one in ast.literal_eval(node.value)]))
    return found
