"""The names of MONAI's networks, read from its files without importing it.

Nothing arrives; names leave, each tagged with the module that it is in. A class that has several names has its own one.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.collections.small_models import package_files


def names(package: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Returns the names of the models with their tags, sorted.

    Args:
        package: the folder of the package; the installed one if None.
    """
    nets = (package or package_files.folder("monai")).joinpath("networks", "nets")
    found = {}
    for module, name in package_files.names_imported(nets / "__init__.py"):
        bases = package_files.bases(nets / f"{module}.py", name)
        if bases and not set(bases) <= _NO_MODULES:
            found[name] = (module,)
    return dict(sorted(found.items()))


_NO_MODULES = {"NamedTuple", "Enum", "StrEnum", "object", "ABC"}
