"""Runs torch's own operator database through the core: capture, translation, ONNX Runtime, comparison with eager.

Arrives: the command line (`python tests/op_database.py --dtype float32 --out outputs/ops.jsonl`). Leaves: one JSON line
for each operator and dtype with the class of its worst sample: pass, capture, missing, translation, ort_load, ort_run,
mismatch, crash, timeout. A sample of which the model gives no finite number proves nothing and counts only where an
operator has no other. Where torch's database says what of a result is determined (of singular vectors all but their
signs), that is compared. Lines that are there already are not computed again. Every operator runs in a forked child
that serves a chunk of them; an operator that crashes or hangs its child is recorded as such, and the rest of the chunk
goes on in a fresh child. `--shard 1/2` takes every second operator, so several processes can share the work.

The expectations beside this file (`op_expectations.json`) name the operators that do not pass; `--check` compares with
them and fails on any difference, in either direction.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import torch  # noqa: E402  # after the thread settings, which it reads once
from torch.utils import _pytree as pytree  # noqa: E402

OPSET = 20
SAMPLES, FURTHER = 3, 12
"""How many samples count, and how many are tried for one with a finite result."""
SECONDS = 60.0
CHUNK = 40
DTYPES = {name: getattr(torch, name) for name in ("float32", "int64", "bool", "float16", "bfloat16", "complex64")}
EXPECTED_DTYPES = ("float32", "int64", "bool")
"""The dtypes that the expectations are about."""
EXPECTATIONS = Path(__file__).with_name("op_expectations.json")
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""An output of a file with one of these is judged by dtype and shape."""
SEVERITY = (
    "nothing",
    "pass",
    "mismatch",
    "ort_run",
    "ort_load",
    "translation",
    "missing",
    "capture",
    "timeout",
    "crash",
)


class OneOperator(torch.nn.Module):
    """Calls an operator with the tensors it is given in place of the sample's, and gives what is determined of it."""

    def __init__(self, function: Any, spec: Any, leaves: Sequence[Any], determined: Any) -> None:
        super().__init__()
        self.function, self.spec, self.determined = function, spec, determined
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Fills the tensors in and calls."""
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.determined(self.function(*args, **kwargs))


def operators() -> dict[str, Any]:
    """torch's operator database by `name.variant`."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in op_db}
    return {name: info for name, info in named.items() if not name.startswith("jiterator")}  # CUDA only


def samples(info: Any, dtype: torch.dtype) -> list[Any]:
    """The first samples of an operator, with fixed seeds; further ones are tried where those prove nothing."""
    torch.manual_seed(0)
    return list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), FURTHER))


def run_sample(info: Any, sample: Any, opset: int = OPSET) -> tuple[str, str]:
    """The class of one sample, and why."""
    from batch_export.errors import MissingOperatorError, OnnxExporterError, VerificationError
    from batch_export.exporter.api import to_onnx
    from batch_export.exporter.capture.capture import capture
    from batch_export.exporter.capture.strategies import STRATEGIES
    from batch_export.exporter.diagnostics.verify import require
    from batch_export.exporter.graph.agreement import proves_nothing
    from batch_export.exporter.graph.tensor_values import to_value
    from batch_export.numbers.compare import compare

    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    module = OneOperator(info.op, spec, leaves, sample.output_process_fn_grad).eval()
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    copies = tuple(tensor.clone() for tensor in tensors)
    with torch.no_grad():
        eager = module(*(tensor.clone() for tensor in copies))
    if not any(isinstance(leaf, torch.Tensor | bool | int | float | complex) for leaf in pytree.tree_leaves(eager)):
        return "nothing", "it gives no tensor and no number"
    try:
        captured = capture(module, tensors, strategies=STRATEGIES[:1])
    except OnnxExporterError as error:
        return "capture", str(error.__cause__ or error)
    except Exception as error:
        return "capture", f"{type(error).__name__}: {error}"
    try:
        program = to_onnx(captured, opset)
    except MissingOperatorError as error:
        return "missing", error.problem
    except OnnxExporterError as error:
        return "translation", str(error)
    except Exception as error:
        return "translation", f"{type(error).__name__}: {error}"
    with torch.no_grad():
        expected = program.adapt_torch_outputs_to_onnx(module(*(tensor.clone() for tensor in copies)))
    try:
        session = session_of(program)
    except Exception as error:
        return "ort_load", str(error)
    feeds = dict(zip(session.input_names, (to_value(_real(tensor)) for tensor in copies), strict=True))
    try:
        actual = session.run(feeds)
    except Exception as error:
        return "ort_run", str(error)
    actual = [value for value, (kind, _) in zip(actual, program.output_kinds, strict=True) if kind == "USER_OUTPUT"]
    if len(actual) != len(expected):
        return "mismatch", f"{len(actual)} outputs in place of {len(expected)}"
    random = info.name.removeprefix("new_").startswith("empty") or any(
        node.op_type in RANDOM for node in program.model.graph.all_nodes()
    )
    is_nothing = False
    for index, (one, value) in enumerate(zip(expected, actual, strict=True)):
        facts = compare(f"out{index}", to_value(one), value)
        if random and facts.expected_dtype == facts.actual_dtype and facts.expected_shape == facts.actual_shape:
            continue
        if proves_nothing(facts):
            is_nothing = True
            continue
        try:
            require([facts])
        except VerificationError as error:
            return "mismatch", error.problem
    return ("nothing", "no number is finite, in the model as in the file") if is_nothing else ("pass", "")


def session_of(program: Any) -> Any:
    """The program in ONNX Runtime on one thread; bfloat16 goes in and out."""
    from batch_export.runtime.ort import OrtSession
    from batch_export.runtime.provider_spec import ProviderSpec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operator.onnx"
        program.save(path)
        return OrtSession(path, ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider"), 1)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def run_operator(name: str, info: Any, dtype: str, opset: int = OPSET) -> dict[str, Any]:
    """The record of an operator: the worst class of its samples, every class, and the reasons."""
    begun = time.perf_counter()
    classes: list[str] = []
    reasons: list[str] = []
    for place, sample in enumerate(samples(info, DTYPES[dtype])):
        if place >= SAMPLES and set(classes) != {"nothing"}:
            break
        try:
            kind, reason = run_sample(info, sample, opset)
        except Exception as error:
            kind, reason = "translation", f"{type(error).__name__}: {error}"
        classes.append(kind)
        reasons.append(" ".join(reason.split())[:400])
    worst = max(classes, key=SEVERITY.index, default="pass")
    return {
        "op": name,
        "dtype": dtype,
        "class": worst,
        "samples": classes,
        "why": next((reason for kind, reason in zip(classes, reasons, strict=True) if kind == worst), ""),
        "seconds": round(time.perf_counter() - begun, 3),
    }


def _serve(chunk: Sequence[tuple[str, Any, str]], pipe: int, opset: int) -> None:
    """The child: one line before and one after each operator."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    with os.fdopen(pipe, "w") as out:
        for name, info, dtype in chunk:
            out.write(json.dumps({"begin": name}) + "\n")
            out.flush()
            out.write(json.dumps(run_operator(name, info, dtype, opset)) + "\n")
            out.flush()


def _lines(pipe: int) -> Iterator[dict[str, Any] | None]:
    """Lines from a child; None when it has been silent for too long."""
    buffer = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], SECONDS)
        if not ready:
            yield None
            return
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        buffer += data
        *complete, buffer = buffer.split(b"\n")
        for line in complete:
            yield json.loads(line)


def run_chunk(chunk: Sequence[tuple[str, Any, str]], opset: int = OPSET) -> Iterator[dict[str, Any]]:
    """Records of a chunk of operators; a child that dies costs the operator that it was at."""
    waiting = list(chunk)
    while waiting:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with contextlib.suppress(BaseException):
                _serve(waiting, writer, opset)
            os._exit(0)
        os.close(writer)
        hung = False
        for line in _lines(reader):
            if line is None:
                hung = True
                os.kill(child, signal.SIGKILL)
            elif "begin" not in line:
                waiting.pop(0)
                yield line
        os.close(reader)
        os.waitpid(child, 0)
        if waiting:
            name, _, dtype = waiting.pop(0)
            yield {"op": name, "dtype": dtype, "class": "timeout" if hung else "crash", "samples": [], "why": ""}


def run(
    out: Path, dtypes: Sequence[str], names: Sequence[str] = (), shard: tuple[int, int] = (1, 1), opset: int = OPSET
) -> list[dict[str, Any]]:
    """Runs what `out` does not hold yet and appends it; returns all records asked for."""
    torch.set_num_threads(1)
    table = operators()
    unknown = [name for name in names if name not in table]
    if unknown:
        raise SystemExit(f"not in torch's operator database: {', '.join(unknown)}")
    done: dict[tuple[str, str], dict[str, Any]] = {}
    if out.exists():
        for text in out.read_text().splitlines():
            record = json.loads(text)
            done[record["op"], record["dtype"]] = record
    from batch_export.exporter.api import warm

    warm()
    wanted = [
        (name, info, dtype)
        for dtype in dtypes
        for name, info in table.items()
        if DTYPES[dtype] in info.supported_dtypes("cpu") and (not names or name in names)
    ]
    index, count = shard
    wanted = wanted[index - 1 :: count]
    todo = [(name, info, dtype) for name, info, dtype in wanted if (name, dtype) not in done]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        for start in range(0, len(todo), CHUNK):
            for record in run_chunk(todo[start : start + CHUNK], opset):
                done[record["op"], record["dtype"]] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
    return [done[name, dtype] for name, _, dtype in wanted]


def differences(records: Sequence[dict[str, Any]], expected: dict[str, dict[str, str]]) -> list[str]:
    """Where records and expectations differ, as sentences."""
    found: list[str] = []
    for record in records:
        name, dtype, kind = record["op"], record["dtype"], record["class"]
        before = expected.get(name, {}).get(dtype, "pass")
        if kind == before:
            continue
        if kind == "pass":
            found.append(f"{name} {dtype} passes now and was expected to end as {before}: take it out of the list")
        else:
            found.append(f"{name} {dtype} was expected to end as {before} and ended as {kind}: {record['why']}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="torch's operator database through the exporter")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES))
    parser.add_argument("--op", action="append", default=[], help="only these (name or name.variant)")
    parser.add_argument("--out", type=Path, default=Path("outputs/ops.jsonl"))
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--opset", type=int, default=OPSET, help="a file of records is of one opset")
    parser.add_argument("--check", action="store_true", help="compare with op_expectations.json; 1 on any difference")
    parser.add_argument("--write-expectations", action="store_true")
    options = parser.parse_args(arguments)
    dtypes = options.dtype or list(EXPECTED_DTYPES)
    index, count = (int(part) for part in options.shard.split("/"))
    records = run(options.out, dtypes, options.op, (index, count), options.opset)
    for dtype in dtypes:
        classes = Counter(record["class"] for record in records if record["dtype"] == dtype)
        print(f"{dtype}: {classes['pass']} of {classes.total()} pass;", dict(classes.most_common()))
    if options.op:
        for record in records:
            print(json.dumps(record))
    if options.write_expectations:
        table: dict[str, dict[str, str]] = {}
        for record in sorted(records, key=lambda record: (record["op"], record["dtype"])):
            if record["class"] != "pass":
                table.setdefault(record["op"], {})[record["dtype"]] = record["class"]
        EXPECTATIONS.write_text(json.dumps(table, indent=1) + "\n")
    if options.check:
        found = differences(records, json.loads(EXPECTATIONS.read_text()))
        print("\n".join(found) or "as expected")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
