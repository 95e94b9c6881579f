"""torch's decompositions of a captured program, without guards, and without the tokens that keep checks in their order.

Arrives: a captured program and which operators to decompose. Leaves: a program in which what only checks (as
`torch.linalg.inv` does, below torch's dispatcher) is a plain operator that nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest.mock import patch

import torch
from torch.export.graph_signature import InputKind

from batch_export.exporter.capture.written_powers import powers_in_brackets


def decomposed(
    program: torch.export.ExportedProgram, table: Mapping[torch._ops.OpOverload, Callable[..., object]]
) -> torch.export.ExportedProgram:
    """The program after torch's decompositions.

    NOTE: this replaces a function of torch's meanwhile. The guards that it asks for run as Python, for which
    `min(6, n) > 0` is of one of the two numbers: a side is taken that nothing has taken before.

    Args:
        program: what was captured.
        table: how operators are decomposed; others stay.
    """
    with patch("torch.export._unlift._ok_to_generate_guards_fn", lambda: False), powers_in_brackets():
        made: torch.export.ExportedProgram = program.run_decompositions(decomp_table=dict(table))
    if not any(spec.kind is InputKind.TOKEN for spec in made.graph_signature.input_specs):
        return made
    from torch.export._remove_effect_tokens_pass import _remove_effect_tokens  # lazy: few programs have tokens

    return _remove_effect_tokens(made)
