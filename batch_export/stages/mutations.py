"""Which output of a file holds the new value of a buffer or input that the model changed.

ONNX names values once, so an output cannot always bear the name of the input or initializer that it updates; exporters
add a word before or behind it. Names arrive and leave; no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def mutation_output(mutation: str, extra_outputs: Sequence[str]) -> str | None:
    """Returns the extra output that stands for a mutation, or None.

    Args:
        mutation: the buffer's or input's name, e.g. `norm.running_mean`.
        extra_outputs: names of the file's outputs behind the ordinary ones.

    The name itself comes first, then the shortest name that holds it between separators (`. _ : /`), such as
    `norm.running_mean_mutated` or `mutated_norm_running_mean`; dots of the module path may have become underscores.
    """
    if mutation in extra_outputs:
        return mutation
    pattern = re.compile(rf"(?:.*[._:/])?{re.escape(mutation).replace(re.escape('.'), '[._]')}(?:[._:/].*)?")
    return min((name for name in extra_outputs if pattern.fullmatch(name)), key=len, default=None)
