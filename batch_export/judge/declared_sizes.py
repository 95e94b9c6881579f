"""Whether the sizes that a file declares for its outputs are the sizes that the model gives.

A file's outputs (as `stages/check.py` describes them) and its runs arrive; findings leave. An axis that a file declares
as fixed has to be of that size at every input that eager ran at: only the runs tell a free axis of an output from one
that is constant. An axis without a size, or with a name, promises none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batch_export.judge.float64 import sizes_of
from batch_export.numbers.facts import OutputFacts
from batch_export.record import Failure, RunFacts


def wrongly_fixed(outputs: Iterable[Mapping[str, Any]], runs: Iterable[RunFacts]) -> Iterator[Failure]:
    """Yields a finding for each output axis that the file fixes at a size which eager's output does not keep.

    Args:
        outputs: `name` and `shape` of each output of the file.
        runs: the file's, at the sizes that were tried.
    """
    compared = [run for run in runs if run.outputs]
    for output in outputs:
        for dim, size in enumerate(output["shape"] or ()):
            if not isinstance(size, int) or size < 0:  # a negative size is no size
                continue
            other = next(_others(output["name"], dim, size, compared), None)
            if other is None:
                continue
            run, facts = other
            message = (
                f"dimension {dim} of output {output['name']!r} is fixed at {size}, and eager's is "
                f"{facts.expected_shape[dim]} at {sizes_of(run)}. Next step: declare the axis by a name, or without a "
                "size"
            )
            yield Failure("dynamic", "StaticAxis", message)


def _others(name: str, dim: int, size: int, runs: Iterable[RunFacts]) -> Iterator[tuple[RunFacts, OutputFacts]]:
    """Yields the runs in which eager's output, and the file's, has another size on the axis.

    Where the file's has not, its values are wrong, which the comparison says.
    """
    for run in runs:
        for facts in run.outputs:
            same = facts.name == name and facts.expected_shape == facts.actual_shape
            if same and dim < len(facts.expected_shape) and facts.expected_shape[dim] != size:
                yield run, facts
