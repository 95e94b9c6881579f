"""Short digests of what actions were seen to use, by short digests of its names: enough to tell that it is another.

Results arrive, plain data leaves. Environment variables are left out: nothing of them is in a report.
"""

from __future__ import annotations

from collections.abc import Iterable

from batch_export.action import ActionResult
from batch_export.digest import digest_value

SHORT = 12
"""Characters that digests are cut to."""


def seen_by(results: Iterable[ActionResult]) -> dict[str, str]:
    """Returns states of files, folders and packages; `several` where two actions saw one in two states."""
    found: dict[str, str] = {}
    for result in results:
        for kind, used in (("file", result.sources), ("asked", result.asked), ("package", result.packages)):
            for name, state in used:
                short, now = _short([kind, name]), _short(state)
                found[short] = now if found.get(short, now) == now else "several"
    return dict(sorted(found.items()))


def _short(value: object) -> str:
    return digest_value(value)[:SHORT]
