"""Captured programs that are not the model, by what is known of torch's captures.

Arrives: a captured program and its module. Leaves: nothing, or an error that names what the program would do otherwise.
"""

from __future__ import annotations

import torch

from batch_export.exporter.capture.caught_failures import refuse_caught_assertions
from batch_export.exporter.capture.overlapping_writes import refuse_overlapping_writes
from batch_export.exporter.capture.returned_operands import refuse_returned_operands
from batch_export.exporter.capture.truth_values import refuse_what_eager_refuses
from batch_export.exporter.capture.written_constants import refuse_unfollowed_writes


def refuse_unfaithful(program: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
    """Looks for what torch's captures are known to leave out or to add.

    Raises:
        RuntimeError: of a class that says which; `failures.py` has the sentences for them.
    """
    refuse_returned_operands(program)
    refuse_caught_assertions(program)
    refuse_overlapping_writes(program)
    refuse_what_eager_refuses(program)
    refuse_unfollowed_writes(program, module)
