"""The config of a model as a file: what a child found out about the model arrives, commented YAML leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.spec import InputSpec
from batch_export.stages.probe_request import Probed

_NAME = re.compile(r"\w+(?:-\w+)*")
_NOTES = {
    "_target_": "What is called for the module; further keys at this level are its arguments.",
    "requires": "Libraries without which the cells are skipped.",
    "inputs": "The arguments of forward: dtype, and a size or the name of a free axis for each dimension.",
    "axes": "Free axes: the size of the example, and other sizes that every file is run at.",
}


def config_of(found: Probed) -> dict[str, Any]:
    """Returns the content of the config."""
    config: dict[str, Any] = {"_target_": found.target, **found.arguments}
    if found.requires:
        config["requires"] = list(found.requires)
    config["inputs"] = _tree(found.inputs)
    if found.axes:
        config["axes"] = {axis.name: {"example": axis.example, "check": list(axis.check)} for axis in found.axes}
    return config


def yaml_of(name: str, config: Mapping[str, Any], outputs: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Returns the config as a file, with what each part is for.

    Args:
        name: the model's.
        config: its content.
        outputs: what the model gives, as a comment.
        notes: sentences at the top.

    Raises:
        UsageError: the config cannot be meant.
    """
    require_name(name)
    model_spec(name, config)
    lines = [f"# {note}" for note in notes]
    for key, value in config.items():
        if key in _NOTES:
            lines.append(f"# {_NOTES[key]}")
        if key in ("inputs", "axes"):
            lines += [f"{key}:", *(f"  {_flow({each: one})[1:-1]}" for each, one in value.items())]
        else:
            lines.append(_flow({key: value})[1:-1])
    if outputs:
        lines += ["# What it gave, in this order:", *(f"#   {output}" for output in outputs)]
    return "\n".join(lines) + "\n"


def require_name(name: str) -> None:
    """Refuses what cannot be the name of a file and of a model.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a model. Next step: take letters, digits, _ and -")


def _tree(leaves: Sequence[InputSpec]) -> dict[str, Any]:
    root: dict[str | int, Any] = {}
    for leaf in leaves:
        node = root
        for step in leaf.path[:-1]:
            node = node.setdefault(step, {})
        node[leaf.path[-1]] = _leaf(leaf)
    return {str(name): _listed(node) for name, node in root.items()}


def _listed(node: Any) -> Any:
    """Mappings whose keys are indices as lists."""
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(key, int) for key in node):
        return [_listed(node[key]) for key in sorted(node)]
    return {key: _listed(value) for key, value in node.items()}


def _leaf(leaf: InputSpec) -> dict[str, Any]:
    if not leaf.dtype:
        return {"value": leaf.constant}
    made: dict[str, Any] = {"dtype": leaf.dtype, "shape": list(leaf.shape)}
    if leaf.fill is not None:
        made["fill"] = _number(leaf.fill)
    elif leaf.high is not None:
        made["range"] = [_number(leaf.low or 0.0), _number(leaf.high)]
    return made


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _flow(value: Any) -> str:
    """The value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.rstrip()
