"""What the path on which modules are looked for is made of: how many folders, which archives, what finders know.

Roots arrive, a digest leaves. It counts for models that went by the path itself: by all metadata on it, by what lies in
its folders, by modules in an archive, by another Python that they started. Where folders lie does not count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from batch_export.digest import Digest, digest_value
from batch_export.sources.editable_maps import all_places
from batch_export.sources.file_digests import content_digest
from batch_export.sources.search_path import search_path

UNREADABLE = "unreadable"


def archives() -> tuple[str, ...]:
    """Returns the files on the path: zip archives, wheels."""
    return tuple(dict.fromkeys(entry for entry in search_path() if os.path.isfile(entry)))


def shape(roots: Sequence[Path]) -> Digest:
    """Returns the digest of how many folders of local modules there are, of what the archives hold, and of where
    finders of editable installs have packages.

    Args:
        roots: folders of local modules.
    """
    count = sum(len(root.parts) > 1 for root in roots)
    return digest_value([count, [*map(_content, archives())], sorted(all_places().items())])


def _content(archive: str) -> str:
    try:
        return content_digest(Path(archive))
    except OSError:
        return UNREADABLE
