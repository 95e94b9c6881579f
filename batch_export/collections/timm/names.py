"""The names of timm's registered models, read from its files without importing it.

Nothing arrives; names leave, each tagged with the module that it is in, which is its family.
"""

from __future__ import annotations

import re
from pathlib import Path

from batch_export.collections.small_models import package_files

_REGISTERED = re.compile(r"^@register_model\b.*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def names(package: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Returns the names of the models with their tags, sorted.

    Args:
        package: the folder of the package; the installed one if None.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted((package or package_files.folder("timm")).joinpath("models").glob("*.py")):
        found |= dict.fromkeys(_REGISTERED.findall(package_files.text(path)), (path.stem,))
    return dict(sorted(found.items()))
