"""`convert`: an ONNX file in, the same model at another opset out, run before and after.

By the rules of `legalise/`, from opset 13 or later to 7 to 28. A file of an earlier opset is brought up to 13 by onnx's
own converter, which is not right for every model: what it made is kept only where both files were run and agree.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from batch_export.conversion import reading
from batch_export.conversion.comparison import Compared, compared
from batch_export.errors import OpsetError, RunError, UsageError
from batch_export.files import put_in_place
from batch_export.legalise import (
    chain,
    lagging,
    moved_batches,
    padded_pools,
    random_numbers,
    scaled_doubles,
    scaled_twice,
    schema_dtypes,
    steps,
    turned_batches,
    turned_vectors,
)
from batch_export.legalise.versions import ir_version_for
from batch_export.words import one_line

LOWEST, HIGHEST = steps.LOWEST, steps.HIGHEST


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of a conversion.

    Attributes:
        path: the file that was written; None where it is not right.
        opsets: before and after.
        changed: how many nodes were changed or written anew.
        kept: nodes of other domains, which stay as they are, by domain and operator.
        comparison: how the files compare.
    """

    path: Path | None
    opsets: tuple[int, int]
    changed: int
    kept: dict[str, int]
    comparison: Compared


def convert(path: Path, opset: int, dest: Path) -> Conversion:
    """Brings a file to another opset.

    Args:
        path: the file; its external data lie where it says.
        opset: the opset wanted, 7 to 28.
        dest: where the new file goes; large weights go to `<dest>.data` where the given file has external data.

    Raises:
        UsageError: the opset is out of range, the file is none or no ONNX model, or `dest` is the file itself.
        NoFormError: an operator has no form at that opset.
        OpsetError: onnx's converter, of a file below opset 13, does not know an operator.
        RunError: the new file cannot be written.
    """
    if not LOWEST <= opset <= HIGHEST:
        nearest = LOWEST if opset < LOWEST else HIGHEST
        raise UsageError(f"opset {opset} is not one of {LOWEST} to {HIGHEST}. Next step: --opset {nearest}")
    if dest.resolve() == path.resolve():
        raise UsageError(f"{path} would be overwritten by its own conversion. Next step: --dest another file")
    model = reading.read(path)
    start = reading.opset_of(model, path)
    if not LOWEST <= start <= HIGHEST:
        raise UsageError(
            f"{path} has opset {start}, which is not one of {LOWEST} to {HIGHEST}. Next step: another file"
        )
    external = any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values())
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    model, changed = _at(reading.prepared(model), start, opset)
    kept = Counter(f"{node.domain}.{node.op_type}" for node in model.graph.all_nodes() if node.domain)
    model.ir_version = ir_version_for(opset, metadata=any(node.metadata_props for node in model.graph.all_nodes()))
    with tempfile.TemporaryDirectory(prefix="batch_export-") as folder:
        made = Path(folder) / dest.name
        try:
            ir.save(model, made, external_data=f"{dest.name}.data" if external else None)
        except Exception as error:
            raise RunError(f"The file at opset {opset} cannot be written: {one_line(str(error))}") from error
        comparison = compared(path, made, (start, opset), inputs)
        doubtful = start < steps.WHOLE and not comparison.runs
        if comparison.worse or doubtful:
            return Conversion(None, (start, opset), changed, dict(kept), comparison)
        _moved(made, dest)
    return Conversion(dest, (start, opset), changed, dict(kept), comparison)


def _at(model: ir.Model, start: int, opset: int) -> tuple[ir.Model, int]:
    """The model at the opset, and how many nodes were changed by our rules."""
    with _by_onnx(f"from opset {start} to {steps.WHOLE}", f"start from a file of opset {steps.WHOLE} or later"):
        model = reading.within_rules(model, start)
    model = reading.prepared(model) if start < steps.WHOLE else model
    random_numbers.keep_dropout(model)
    changed = random_numbers.write_out(model) if opset >= random_numbers.FIRST_OPSET else 0
    changed += chain.legalise(model, max(start, steps.WHOLE), opset)
    changed += lagging.write_out(model, opset)
    for node in list(model.graph.all_nodes()):
        if node.domain == "":
            schema_dtypes.fit(node, opset)
    padded_pools.keep_apart(model, opset)
    moved_batches.keep_apart(model)
    scaled_twice.keep_apart(model)
    scaled_doubles.keep_apart(model)
    turned_vectors.put_first(model)
    turned_batches.cast_first(model)
    return model, changed


@contextlib.contextmanager
def _by_onnx(way: str, next_step: str) -> Iterator[None]:
    """Says which way it was on which onnx's own converter failed, and what to do."""
    try:
        yield
    except Exception as error:
        raise OpsetError(
            f"onnx's converter does not bring the file {way}: {one_line(str(error))}", next_step=next_step
        ) from error


def _moved(made: Path, dest: Path) -> None:
    """Puts the file, and its data, in their places; the data come first."""
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        for name in (f"{dest.name}.data", dest.name):
            source = made.parent / name
            if source.is_file():
                scratch = dest.parent / f".{name}-converted"
                scratch.write_bytes(source.read_bytes())
                put_in_place(scratch, dest.parent / name)
    except OSError as error:
        raise RunError(f"{dest} cannot be written: {error}. Next step: --dest a folder that can be written") from error
