"""What is asked of a child about a model that has no config yet, and what it answers.

Frozen plain data, one JSON file in each direction; nothing is imported here that is not needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from batch_export.spec import AxisSpec, InputSpec


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A model as a person names it.

    Attributes:
        name: what its config will be called.
        target: dotted name of what returns the module; empty where `path` is given.
        path: a `.pt2`, `.pt` or `.pth` file, or the folder of a transformers checkpoint.
        arguments: of the builder.
        inputs: those that were described; empty: they are to be found.
        sizes: example sizes of the axes that `inputs` names.
        unsized: those of them whose size nobody gave, so that it is to be found.
        compares: whether to tell what `target` stands on, see `code_state.py`.
    """

    name: str
    target: str = ""
    path: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    unsized: tuple[str, ...] = ()
    compares: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """What a child found: all that a config says, or why there can be none.

    Attributes:
        refusal: one sentence; all else is empty then.
        target: `_target_` of the config.
        arguments: of the builder.
        requires: libraries that the builder needs.
        inputs: the leaves, with names of axes in their shapes.
        axes: with the sizes that the model was seen to run at.
        outputs: such as `logits float32[batch, 10]`.
        notes: sentences for whoever reads the config: what was guessed, and what stays fixed and why.
        builder: text of a module with a builder that has to be written beside; empty where none is needed.
        code: what the target stands on, where that was asked for.
    """

    refusal: str = ""
    target: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    axes: tuple[AxisSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    builder: str = ""
    code: dict[str, str] = field(default_factory=dict)


def builder_module(name: str) -> str:
    """Name of the module that a builder for this model is written to."""
    return f"{name.replace('-', '_')}_builder"
