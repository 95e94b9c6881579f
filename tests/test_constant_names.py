"""Constants that a rewrite makes have names that no captured node has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from batch_export.exporter.optimise.edits import constant
from tests.exporting import export_and_compare


class Heads(torch.nn.Module):
    """Axes that are split and moved in fewer steps, beside a split of torch's: both used to be called `split_0`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.sigmoid(x).split(3, -1)
        heads = x.reshape(4, 10, 3).transpose(0, 1).reshape(5, 2, 4, 3)
        return heads.sum((0, 1)) + (left * right).sum(1)


def test_a_split_of_the_model_beside_axes_that_are_split() -> None:
    program = export_and_compare(Heads(), (torch.rand(4, 5, 6),))
    names = [output.name for node in program.model.graph for output in node.outputs]
    assert "split_0" in names
    assert len({*names, *program.model.graph.initializers}) == len(names) + len(program.model.graph.initializers)


def test_a_taken_name_is_left_alone() -> None:
    taken = ir.Value(name="split.0", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
    model = ir.Model(ir.Graph([taken], [], nodes=[], opset_imports={"": 20}), ir_version=10)
    made = [constant(model, np.zeros(1, np.int64), "split").name for _ in range(2)]
    assert made == ["split.1", "split.2"]
