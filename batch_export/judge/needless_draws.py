"""Whether a file draws random numbers of a model that draws none.

Facts of eager's runs and of the file arrive, findings leave. The runs that were compared agree, or say so themselves:
a number that is drawn anew at each run may be another one at the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from batch_export.record import Failure


def needless_draws(eager: Mapping[str, Any], file: Mapping[str, Any]) -> Iterator[Failure]:
    """Yields a finding where the file is known to draw, and eager gives the same at every run without drawing.

    Args:
        eager: facts of eager's runs (`stages/reference.py`); those of older versions do not say whether it drew.
        file: facts of the file (`stages/check.py`).
    """
    drawing = [name for name, is_known in file.get("random_operators", {}).items() if is_known]
    if drawing and eager.get("deterministic") and eager.get("drew") is False:
        message = (
            f"the file draws random numbers at each run ({', '.join(drawing)}), and the model gives the same at every "
            "run without moving torch's generator. Next step: have the exporter leave these operators out (a Dropout "
            "in eval mode does nothing)"
        )
        yield Failure("check", "RandomOperator", message)
