"""Metadata of nodes, values and the graph, as PyTorch's documentation of the ONNX exporter names it.

Arrives: FX nodes and the graph signature. Leaves: plain strings for `metadata_props`. Nothing is computed from tensors.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from batch_export.errors import Place

_PREFIX = "pkg.torch.onnx."
KIND = "pkg.torch.export.graph_signature.{side}Spec.kind"
PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
ORIGINAL_NAME = _PREFIX + "original_node_name"
GRAPH_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
RANGE_CONSTRAINTS = "pkg.torch.export.ExportedProgram.range_constraints"
GUARDS = "batch_export.guards"
ASSUMPTIONS = "batch_export.assumptions"
STACK_TRACE = _PREFIX + "stack_trace"
_DYNAMO = "/torch/_dynamo/"
FX_NODE = _PREFIX + "fx_node"
NAME_SCOPES = _PREFIX + "name_scopes"
CLASS_HIERARCHY = _PREFIX + "class_hierarchy"


_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
_TORCH_FRAME = f'File "{Path(torch.__file__).parent}{os.sep}'
_GENERATED_FRAME = 'File "<eval_with_key>'
"""Of code that torch wrote for a graph, numbered by how many it wrote before in this process."""
_OWN_FRAME = f'File "{Path(__file__).parent.parent}{os.sep}'


def target_name(target: object) -> str:
    """`aten.add.Tensor` for an overload, the function's name otherwise."""
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))


def class_name(kind: str | type) -> str:
    """`package.module.Class`; torch's programs have it as a text, or the class itself."""
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def modules_around(node: torch.fx.Node) -> dict[str, tuple[str, str | type]]:
    """The calls of modules around an FX node, outermost first: torch's key -> path and class.

    Torch gives sizes, which it reads anew, a stack of a module that is none.
    """
    stack: Mapping[str, tuple[str, str | type]] = node.meta.get("nn_module_stack") or {}
    return {key: one for key, one in stack.items() if key != _NO_MODULE}


def node_metadata(node: torch.fx.Node) -> dict[str, str]:
    """The documented properties of one FX node: namespace, class hierarchy, fx node, name scopes, stack trace."""
    stack = modules_around(node)
    scopes = [path for path, _ in stack.values()]
    classes = [class_name(kind) for _, kind in stack.values()]
    operator = target_name(node.target)
    parts = [name if not path else f"{path}: {name}" for path, name in zip(scopes, classes, strict=True)]
    properties = {
        "namespace": "/".join([*parts, f"{node.name}: {operator}"]),
        CLASS_HIERARCHY: repr([*classes, operator]),
        FX_NODE: node.format_node() or str(node),
        NAME_SCOPES: repr([*scopes, node.name]),
    }
    trace = _trace(node)
    if trace and (plain := _plain_trace(trace)):
        properties[STACK_TRACE] = plain
    return properties


def _plain_trace(trace: str) -> str:
    """A stack trace without marks under columns, dynamo's frames, which strict captures have, and generated code."""
    others: list[str] = []
    written: list[str] = []
    kept = written
    for line in trace.splitlines():
        if line.lstrip().startswith('File "'):
            is_generated = line.lstrip().startswith(_GENERATED_FRAME)
            kept = [] if is_generated else others if _DYNAMO in line else written
        if line.strip(" ^~"):
            kept.append(line)
    return "\n".join(written or others).strip()


def source_location(node: torch.fx.Node) -> str | None:
    """`file:line` of the innermost frame of the model's own source; torch's own frames only where there is no other."""
    trace = _trace(node)
    return innermost_line(trace) if trace else None


def _trace(node: torch.fx.Node) -> str:
    """The stack trace of a node; of a branch that was put in place of a decision, that of what is decided by."""
    trace: str = node.meta.get("stack_trace") or ""
    decided_by = node.args[0] if node.target is torch.ops.higher_order.cond else None
    frames = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    is_own = all(frame.startswith(_OWN_FRAME) for frame in frames)
    return (_trace(decided_by) if is_own and isinstance(decided_by, torch.fx.Node) else "") or trace


def innermost_line(trace: str) -> str | None:
    """`file:line` of the innermost frame of a stack trace, of the model's own source where there is any."""
    frames = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    frames = [frame for frame in frames if not frame.startswith(_GENERATED_FRAME)]
    if not frames:
        return None
    frames = [frame for frame in frames if not frame.startswith(_OWN_FRAME)] or frames
    own = [frame for frame in frames if not frame.startswith(_TORCH_FRAME)]
    file, _, rest = (own or frames)[-1].removeprefix('File "').partition('", line ')
    line = rest.split(",")[0].strip()
    return f"{file}:{line}" if line.isdigit() else None


def place(node: torch.fx.Node) -> Place:
    """Where a node is, as an error names it."""
    return Place(node.name, target_name(node.target), source_location(node))


def up_to_module(properties: Mapping[str, str], path: str) -> dict[str, str]:
    """What the properties of a node within a module say of the module itself; nothing where they do not name it."""
    scopes = ast.literal_eval(properties.get(NAME_SCOPES, "[]"))
    if path not in scopes[:-1]:
        return {}
    count = scopes.index(path) + 1
    classes = ast.literal_eval(properties.get(CLASS_HIERARCHY, "[]"))
    names = [name if not where else f"{where}: {name}" for where, name in zip(scopes, classes[:count], strict=False)]
    return {
        "namespace": "/".join(names),
        CLASS_HIERARCHY: repr(classes[:count]),
        NAME_SCOPES: repr(scopes[:count]),
    }
