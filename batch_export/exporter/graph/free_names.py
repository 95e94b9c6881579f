"""Names that nothing in a graph has yet."""

from __future__ import annotations


def free_name(wanted: str, names: set[str | None]) -> str:
    """Returns the name, with a number behind it if it is taken, and adds it to those that are."""
    name, number = wanted, 0
    while name in names:
        number += 1
        name = f"{wanted}_{number}"
    names.add(name)
    return name
