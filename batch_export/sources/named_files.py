"""Files and folders that arguments in configs name: checkpoints, calibration data, and the sources of an exporter's
passes.

Arguments of a builder or an exporter arrive, digests by name leave. Files are read, never imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_export.digest import Digest
from batch_export.sources.closure import find_module, source_digest
from batch_export.sources.file_digests import content_digest, folder_digest
from batch_export.sources.import_names import ImportNames
from batch_export.sources.places import resolve_target

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
    arguments: Mapping[str, Any],
    roots: Sequence[Path],
    names: ImportNames | None = None,
    avoided: Collection[Path] = (),
) -> dict[str, Digest]:
    """Returns the digests of what arguments name.

    A folder that holds a root or one of `avoided` is left to what children are seen to open: the run writes into it.

    Args:
        arguments: of a builder or an exporter, as the config has them.
        roots: folders of local modules.
        names: knows what source files import; anew if None.
        avoided: folders that the run itself writes into.

    Returns:
        Text -> digest: of the content where a text is the path of a file or a folder, and of the local sources that a
        name in `passes` stands on.
    """
    found = {text: digest for text in set(texts(arguments)) if (digest := _digest(text, [*roots, *avoided]))}
    for text in texts(arguments.get(_PASSES)):
        if "." in text and text not in found and find_module(resolve_target(text)[0], tuple(roots)) is not None:
            found[text] = source_digest(text, roots, names)
    return found


def _digest(text: str, inner: Collection[Path]) -> Digest | None:
    try:
        path = Path(text).resolve()
        if not text or not path.exists():
            return None
        if path.is_file():
            return content_digest(path)
        if not path.is_dir() or any(one.is_relative_to(path) for one in inner):
            return None
        return folder_digest(path)
    except (OSError, ValueError, RuntimeError):  # no file system takes the text as a name, or it cannot be read
        return None
