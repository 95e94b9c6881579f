"""Local files that arguments in configs name: checkpoints, calibration data, and the sources of an exporter's passes.

Arguments of a builder or an exporter arrive, digests by name leave. Files are read, never imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from batch_export.digest import Digest, digest_file
from batch_export.import_names import ImportNames
from batch_export.packaging_paths import resolve_target
from batch_export.sources import find_module, source_digest

_PASSES = "passes"


def texts(arguments: Any) -> Iterator[str]:
    """Yields every text in nested arguments, names of keys left out."""
    if isinstance(arguments, str):
        yield arguments
    elif isinstance(arguments, Mapping):
        for value in arguments.values():
            yield from texts(value)
    elif isinstance(arguments, (list, tuple)):
        for value in arguments:
            yield from texts(value)


def named_digests(
    arguments: Mapping[str, Any], roots: Sequence[Path], names: ImportNames | None = None
) -> dict[str, Digest]:
    """Returns the digests of what arguments name.

    Args:
        arguments: of a builder or an exporter, as the config has them.
        roots: folders of local modules.
        names: knows what source files import; anew if None.

    Returns:
        Text -> digest: of the file's bytes where a text is the path of a file, and of the local sources that a name in
        `passes` stands on.
    """
    found = {text: _digest(Path(text)) for text in texts(arguments) if _is_file(text)}
    for text in texts(arguments.get(_PASSES)):
        if "." in text and text not in found and find_module(resolve_target(text)[0], tuple(roots)) is not None:
            found[text] = source_digest(text, roots, names)
    return found


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # texts that no file system takes as a name
        return False


def _digest(path: Path) -> Digest:
    status = path.stat()
    return _digest_once(str(path.resolve()), status.st_mtime_ns, status.st_size)


@cache
def _digest_once(path: str, mtime_ns: int, size: int) -> Digest:
    del mtime_ns, size  # they are there for the cache: checkpoints are large
    return digest_file(Path(path))
