"""Random numbers that eager draws alike in each call: forward seeds torch, or draws from a generator that it made.

Arrives: a module, while a strategy captures it, and the program. Leaves: in words, what seeds them and where. A file
has no generator that could be seeded when it runs: its random operators draw other numbers each time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from batch_export.exporter.capture.guard_sources import is_torchs, users_location
from batch_export.exporter.capture.numbered_values import draws
from batch_export.exporter.capture.own_attributes import modules_of
from batch_export.exporter.graph.metadata import source_location

_NONE = frozenset({bool, int, float, str, type(None), dict, list, tuple, OrderedDict, torch.Tensor, torch.nn.Parameter})
"""What is no generator: most of what modules hold. torch's class of generators takes its time when it is asked."""
_OTHER_SEED = 0x5EED5EED
"""What an own generator is seeded with during a capture, so that another seed is seen."""


class _Noticing:
    """torch's generator, which notes when the model's code sets it."""

    def __init__(self, generator: torch.Generator, lines: list[str]) -> None:
        self._generator = generator
        self._lines = lines

    def manual_seed(self, seed: int) -> torch.Generator:
        self._note()
        return self._generator.manual_seed(seed)

    def set_state(self, state: torch.Tensor) -> torch.Generator:
        self._note()
        return self._generator.set_state(state)

    def _note(self) -> None:
        if not _is_compiling() and (line := users_location(3)) and f"at {line}" not in self._lines:
            self._lines.append(f"at {line}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def _is_compiling() -> bool:
    """Whether dynamo, which compiles a part of the model, puts the state back that it found."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_torchs(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith(_COMPILES):
            return True
        frame = frame.f_back
    return False


_COMPILES = os.path.join("_dynamo", "convert_frame.py")


@contextlib.contextmanager
def seeds_noted() -> Iterator[list[str]]:
    """While open, has the lines noted where forward seeds torch.

    NOTE: `torch.random`'s own name for the generator is replaced, through which `torch.manual_seed` goes.
    """
    lines: list[str] = []
    drawing: Any = torch.random
    original: Any = getattr(drawing, "default_generator", None)
    seed = torch.default_generator.initial_seed()
    if original is not None:
        drawing.default_generator = _Noticing(original, lines)
    try:
        yield lines
    finally:
        if original is not None:
            drawing.default_generator = original
        if not lines and torch.default_generator.initial_seed() != seed:
            lines.append("by torch.default_generator")


@contextlib.contextmanager
def other_seeds(module: torch.nn.Module) -> Iterator[frozenset[str]]:
    """While open, a module's own generators, whose names are given, have a seed that no other has.

    Whoever puts their states back stands round it.
    """
    own = {
        f"{path}.{name}".removeprefix("."): value
        for path, owner in modules_of(module)
        for name, value in vars(owner).items()
        if type(value) not in _NONE and isinstance(value, torch.Generator)
    }
    for one in own.values():
        one.manual_seed(_OTHER_SEED)
    yield frozenset(own)


def seeded(program: torch.export.ExportedProgram, noted: Sequence[str]) -> list[str]:
    """What seeds the program's random operators, in words; nothing where it has none.

    Args:
        program: what was captured.
        noted: what `seeds_noted` gave.
    """
    drawing = drawing_nodes(program)
    if not drawing:
        return []
    generators = [one for one in program.constants.values() if isinstance(one, torch.Generator)]
    made = any(one.initial_seed() != _OTHER_SEED for one in generators)
    lines = [line for node in drawing if node.kwargs.get("generator") is not None and (line := source_location(node))]
    return [*noted, *([" at ".join(("of a generator that forward makes", *lines[:1]))] if made else [])]


def drawing_nodes(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """The random operators of a program, those in its branches and loops too."""
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    return [node for graph in graphs for node in graph.nodes if draws(node)]
