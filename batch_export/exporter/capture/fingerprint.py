"""The graph digest: the identity of an exported program, the same in every process.

Arrives: a `torch.export.ExportedProgram`. Leaves: one sha256 that changes with any operator, scalar, size, guard,
weight, module scope or tree of inputs and outputs, and does not change with comments, line numbers or names of local
variables.
"""

from __future__ import annotations

import hashlib
import re

import torch

from batch_export.exporter.graph import weights

_SOURCE_COMMENT = re.compile(r"^\s*# File:.*$", re.MULTILINE)


def graph_digest(program: torch.export.ExportedProgram, weights_digest: str = "") -> str:
    """The digest of a program.

    Args:
        program: what was captured.
        weights_digest: the digest of the weights' file, where it has been computed already (weights are then not read
            again; small ones, which are not in that file, are).
    """
    sha = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            sha.update(repr(part).encode())
            sha.update(b"\0")

    add(_SOURCE_COMMENT.sub("", str(program)))
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        add(node.name, [(path, str(kind)) for path, kind in stack.values()])
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            add(str(value.stride()))
    add(str(program.call_spec.in_spec), str(program.call_spec.out_spec))
    add(getattr(program, "_guards_code", None))
    for store in (program.state_dict, program.constants):
        tensors = {name: value for name, value in store.items() if isinstance(value, torch.Tensor)}
        for name, value in store.items():
            shown = (str(value.dtype), tuple(value.shape)) if isinstance(value, torch.Tensor) else str(type(value))
            add(name, shown)
        threshold = -1 if not weights_digest else None
        small = (
            tensors
            if threshold is not None
            else {name: t for name, t in tensors.items() if t.numel() * t.element_size() <= weights.SMALL_BYTES}
        )
        sha.update(weights.digest(weights.layout(small, threshold=-1)).encode())
    add(weights_digest)
    return sha.hexdigest()


def program_tensors(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Every tensor that a program carries, by name: parameters, buffers, constants."""
    found = {**program.state_dict, **program.constants}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
