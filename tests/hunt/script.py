"""A failing program as a script: it needs torch, onnx, onnxruntime and `batch_export.export`, nothing of the hunter.

The script exits 1 while the file is wrong and 0 once it is right. The file lies beside it.
"""

from __future__ import annotations

import torch

from hunt.judge import Finding
from hunt.programs import Leaf, dynamic_shapes, source
from hunt.shrink import Subject

_HEAD = '''"""{title}

{detail}
Seed {seed}; reproduce the whole program with `nox -s hunt -- --only {seed}`.
"""

import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import torch
import torch.nn.functional as F

import batch_export

nan, inf = math.nan, math.inf


'''
_TAIL = """

def flat(outputs):
    return torch.utils._pytree.tree_leaves(outputs)


def shown(results):
    return "; ".join(str(np.asarray(one.float() if isinstance(one, torch.Tensor) else one).tolist()) for one in results)


program = batch_export.export(
    Model({buffers}), example, opset_version={opset}, dynamic_shapes={dynamic}, allow_guards={allow}
)
path = str(Path(__file__).with_suffix(".onnx"))
program.save(path)
onnx.checker.check_model(path, full_check=True)
model = Model({buffers})
expected = flat(model(*[torch.utils._pytree.tree_map(torch.clone, one) for one in failing]))
print("eager           ", shown(expected))
names = [one.name for one in program.model.graph.inputs]
wrong = False
for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(path, options)
    actual = session.run(None, {{name: one.numpy() for name, one in zip(names, flat(failing))}})
    print(f"{{level:16}}", shown(actual))
    wrong |= any(
        list(one.shape) != list(other.shape) or not np.allclose(one.numpy(), other, {tolerance}, equal_nan=True)
        for one, other in zip(expected, actual)
    )
print("onnx.reference  ", shown(onnx.reference.ReferenceEvaluator(path).run(
    None, {{name: one.numpy() for name, one in zip(names, flat(failing))}})))
sys.exit(int(wrong))
"""


def script(subject: Subject, finding: Finding, seed: int) -> str:
    """The script's text."""
    program = subject.program
    title = f"{finding.outcome}: {finding.kind} ({', '.join(program.operators)})".replace("\\", "/").replace('"""', "")
    head = _HEAD.format(title=title, detail=finding.detail.replace("\\", "/").replace('"""', ""), seed=seed)
    kept = {leaf.name for leaf in program.buffers}
    buffers = ", ".join(f"{leaf.name}={_buffer(subject, leaf, kept)}" for leaf in program.buffers)
    values = [
        f"{name} = ({_arguments(subject, index)},)"
        for name, index in (("example", 0), ("failing", len(subject.cases) - 1))
    ]
    dtypes = {leaf.dtype for leaf in program.leaves}
    loose = "rtol=1e-2, atol=1e-2" if dtypes & {"float16", "bfloat16"} else "rtol=1e-4, atol=1e-12"
    tail = _TAIL.format(
        buffers=buffers,
        opset=program.opset,
        dynamic=dynamic_shapes(program),
        allow=program.allow_guards,
        tolerance=loose,
    )
    return head + source(program) + "\n\n" + "\n".join(values) + "\n" + tail


def _buffer(subject: Subject, leaf: Leaf, kept: set[str]) -> str:
    """The buffer's value, under a name where another one lies in its memory."""
    value = subject.cases[0].values[leaf.name]
    if leaf.within in kept:
        return f"memory_of_{leaf.within}.view({tuple(value.shape)})"
    shared = any(one.within == leaf.name for one in subject.program.buffers)
    return f"(memory_of_{leaf.name} := {literal(value, leaf)})" if shared else literal(value, leaf)


def _arguments(subject: Subject, index: int) -> str:
    program, values = subject.program, subject.cases[index].values
    plain = [literal(values[leaf.name], leaf) for leaf in program.inputs if leaf.name not in program.nested]
    if program.nested:
        items = [
            f'"{leaf.name}": {literal(values[leaf.name], leaf)}'
            for leaf in program.inputs
            if leaf.name in program.nested
        ]
        plain.append(f"{{{', '.join(items)}}}")
    return ", ".join(plain)


def _number(number: object) -> str:
    """A number as an expression; of a complex one `repr` writes `infj`, which is a name."""
    return f"complex({number.real!r}, {number.imag!r})" if isinstance(number, complex) else repr(number)


def literal(tensor: torch.Tensor, leaf: Leaf) -> str:
    """The tensor as an expression of Python, with its layout."""
    flat = tensor.flatten().tolist()
    several = len(flat) > 1 and len(set(map(str, flat))) == 1
    shown = [_number(one) for one in flat]
    numbers = f"[{shown[0]}] * {len(flat)}" if several else f"[{', '.join(shown)}]"
    made = f"torch.tensor({numbers}, dtype=torch.{leaf.dtype}).reshape({tuple(tensor.shape)})"
    if leaf.layout == "permuted" and tensor.dim() > 1:
        order = tuple(range(tensor.dim()))[::-1]
        return f"{made}.permute{order}.contiguous().permute{order}"
    if leaf.layout == "strided" and tensor.dim():
        return f"{made}.repeat_interleave(2, -1)[..., ::2]"
    return made
