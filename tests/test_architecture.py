"""docs/architecture.md: the files that it names are there, and its picture renders."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = set(re.findall(r"`((?:[\w.*-]+/)*[\w.*-]+\.(?:py|yaml|md|toml)|(?:[\w-]+/)+)`", TEXT))
    assert len(named) > 50
    bases = (ROOT, ROOT / "batch_export", ROOT / "docs", ROOT / "batch_export" / "exporter")
    assert not [name for name in sorted(named) if not any(list(base.glob(name)) for base in bases)]


# The picture: the part of Mermaid's flowchart grammar that it uses. What does not fit would be shown as an error.
PICTURE = re.compile(r"```mermaid\n(.*?)```", re.S)
LABEL = r'(?:\["[^"<>]+"\]|\[\("[^"<>]+"\)\])'
NODE = rf"(?!end\b)([a-z]\w*)({LABEL})?"
NODE_LINE = re.compile(rf"{NODE}(?: (?:-->|-- \"[^\"<>]+\" -->) {NODE})*")


class Picture:
    """The nodes, edges and groups of a flowchart; a line that is none of these is refused."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []
        self.groups: list[str] = []
        first, *lines = [line.strip() for line in text.strip().splitlines()]
        assert re.fullmatch(r"flowchart (TD|TB|LR|RL|BT)", first), first
        opened = 0
        for line in lines:
            if line == "end":
                opened -= 1
                assert opened >= 0, "an `end` without a subgraph"
            elif line.startswith("subgraph "):
                group = re.fullmatch(r'subgraph ([a-z]\w*)\["([^"<>]+)"\]', line)
                assert group, line
                self.groups.append(group[1])
                opened += 1
            else:
                self._nodes(line)
        assert opened == 0, "a subgraph without an `end`"

    def _nodes(self, line: str) -> None:
        assert NODE_LINE.fullmatch(line), line
        outside = re.sub(r"-- \"[^\"]+\" -->", "-->", line)
        names: list[str] = []
        for part in outside.split(" --> "):
            node = re.fullmatch(NODE, part)
            assert node, part
            names.append(node[1])
            if node[2]:
                assert node[1] not in self.labels, f"{node[1]} has two labels"
                self.labels[node[1]] = node[2].strip('[("])')
        self.edges += itertools.pairwise(names)


def test_the_picture_is_a_flowchart_whose_nodes_are_all_described_and_joined() -> None:
    (text,) = PICTURE.findall(TEXT)
    picture = Picture(text)
    ends = {name for edge in picture.edges for name in edge}
    assert ends == set(picture.labels)
    assert not set(picture.groups) & ends
    rooms = [room for label in picture.labels.values() for room in re.findall(r"^([a-z]+)/", label)]
    assert len(rooms) >= 8
    assert not [room for room in rooms if not (ROOT / "batch_export" / room).is_dir() and not (ROOT / room).is_dir()]


@pytest.mark.parametrize(
    "broken",
    [
        "graph\n a --> b",
        'flowchart TD\n subgraph x["X"]\n a["A"]',
        'flowchart TD\n a["A"]\n end',
        'flowchart TD\n a["A" --> b',
        "flowchart TD\n a --> end",
        'flowchart TD\n a -- "x --> b',
        'flowchart TD\n a[("A"] --> b',
        'flowchart TD\n subgraph one two["X"]\n end',
    ],
)
def test_a_picture_outside_of_that_grammar_is_refused(broken: str) -> None:
    with pytest.raises(AssertionError):
        Picture(broken)
