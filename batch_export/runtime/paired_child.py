"""The process in which two ONNX files are timed against each other: `python -m batch_export.runtime.paired_child`.

One order arrives as JSON on standard input, one line of JSON (`PairedFacts`) leaves on standard output. numpy and
onnxruntime are all it needs; it never imports torch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from batch_export.errors import BatchExportError
from batch_export.runtime.feeds import feeds_for
from batch_export.runtime.paired import PairedFacts, paired
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session
from batch_export.runtime.tensor_file import TensorFile
from batch_export.words import class_and_line


@dataclass(frozen=True, slots=True)
class PairedOrder:
    """What to time: the old file and the new one, each with the tensor file that holds its example inputs."""

    base: str
    base_reference: str
    new: str
    new_reference: str
    provider: ProviderSpec
    threads: int = 1
    budget_s: float = 3.0


def carry_out(order: PairedOrder) -> PairedFacts:
    """Opens both files and times them."""
    sessions = []
    try:
        prepared = []
        for model, reference in ((order.base, order.base_reference), (order.new, order.new_reference)):
            session = open_session(Path(model), order.provider, order.threads)
            sessions.append(session)
            tensors = TensorFile(Path(reference))
            feeds = feeds_for(session.input_names, tensors.under("case0/in/"))  # the example sizes
            plain = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in feeds.items()}
            prepared.append(session.prepare(plain))
        first, second = prepared
        is_here = not any(hasattr(run, "timed") for run in prepared)  # the CPU time of another process is not ours
        alone = is_here and order.threads == 1 and order.provider.execution_provider == "CPUExecutionProvider"
        return paired(first, second, budget_s=order.budget_s, watch_cpu=alone)
    except (BatchExportError, RuntimeError, OSError, ValueError) as error:
        return PairedFacts(error=class_and_line(error))
    finally:
        for session in sessions:
            session.close()


def main() -> int:
    """Reads the order, writes the facts."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=PairedOrder)
    facts = carry_out(order)
    sys.stdout.buffer.write(msgspec.json.encode(facts) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
