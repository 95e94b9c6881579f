"""torch's own catalogue of export cases: every one that torch.export captures also becomes a right ONNX file."""

from __future__ import annotations

import pytest
from torch._export.db.examples import all_examples

from batch_export.exporter import export

pytestmark = pytest.mark.sampled

CASES = all_examples()


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Exports with verification; a case that torch calls unsupported may still be captured by a later strategy."""
    case = CASES[name]
    export(
        case.model,
        case.example_args,
        kwargs=case.example_kwargs,
        dynamic_shapes=case.dynamic_shapes,
        allow_guards=True,
        verify=True,
    )
