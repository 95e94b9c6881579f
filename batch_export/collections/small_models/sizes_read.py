"""Sizes that do not fit one another, read from the errors of layers, operators and models.

A message arrives, pairs of numbers leave: what there is, and what is wanted. Some errors do not say which is which.
"""

from __future__ import annotations

import math
import re

_PAIRS = (
    re.compile(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<given>\d+) and (?P<wanted>\d+)x\d+\)"),
    re.compile(r"normalized_shape=\[(?P<wanted>\d+)\].*input of size ?\[(?:\d+, )*(?P<given>\d+)\]"),
    re.compile(r"normalized_shape=\[(?P<wanted>\d+)\].*input of size ?\[\d+, (?P<given>\d+), \d+, \d+\]"),
    re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+) channels"),
    re.compile(r"expected (?:self and mat2|m1 and m2) .*?, but got: \w+ *(?P<given>\d+) != \w* *(?P<wanted>\d+)"),
    re.compile(
        r"suffix torch\.Size\(\[(?P<given>\d+), \d+\]\) does not match expected suffix.*? \((?P<wanted>\d+), \d+\)"
    ),
)
_EITHER = (
    re.compile(r"size of tensor a \((?P<given>\d+)\) must match the size of tensor b \((?P<wanted>\d+)\)"),
    re.compile(r"Expected size (?P<given>\d+) but got size (?P<wanted>\d+) for tensor"),
    re.compile(r"expanded size of the tensor \((?P<given>\d+)\) must match the existing size \((?P<wanted>\d+)\)"),
    re.compile(r"running_mean should contain (?P<given>\d+) elements not (?P<wanted>\d+)"),
)
_PARTS = re.compile(r"split_sizes to sum exactly to (?P<whole>\d+) .*?split_sizes=\[(?P<parts>[\d, ]+)\]")
_VIEW = re.compile(r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)")
_MULTIPLE = re.compile(r"(?:multiple of|divisible by) (?:`[^`]*` )?\(?`?(?P<unit>\d+)")
_NUMBER = re.compile(r"\b(\d+)\b")


def unlike_sizes(text: str) -> list[tuple[int, int]]:
    """Returns pairs of a size that there is and the one that is wanted; both ways round where it is not said."""
    found = [(int(said["given"]), int(said["wanted"])) for one in _PAIRS if (said := one.search(text))]
    for one in _EITHER:
        if said := one.search(text):
            found += [(int(said["given"]), int(said["wanted"])), (int(said["wanted"]), int(said["given"]))]
    parts = parts_said(text)
    if parts is not None:
        found.append((parts[0], sum(parts[1])))
    return [(given, wanted) for given, wanted in dict.fromkeys(found) if given != wanted and given and wanted]


def parts_said(text: str) -> tuple[int, list[int]] | None:
    """Returns the size that a split cuts and the parts that it was to be cut to."""
    said = _PARTS.search(text)
    return (int(said["whole"]), [int(one) for one in said["parts"].split(",")]) if said else None


def shape_said(text: str) -> tuple[list[int], int] | None:
    """Returns the shape that something was to be given, with -1 for what is left over, and its number of elements."""
    said = _VIEW.search(text)
    return ([int(one) for one in said["shape"].split(",")], int(said["size"])) if said else None


def lengths_said(text: str) -> list[tuple[int, int]]:
    """Returns the number of elements that a reshape was given, and the size of the rows that it was to be cut to."""
    said = shape_said(text)
    if said is None or -1 not in said[0]:
        return []
    shape, size = said
    unit = math.prod(shape[shape.index(-1) + 1 :])
    return [(size, unit)] if unit > 1 else []


def multiple_said(text: str) -> tuple[int, int] | None:
    """Returns the length that is not a multiple of something (0 where it is not said), and that something."""
    said = _MULTIPLE.search(text)
    if said is None or (unit := int(said["unit"])) < 2:
        return None
    lengths = [length for one in _NUMBER.findall(text) if (length := int(one)) % unit]
    return max(lengths, default=0), unit
