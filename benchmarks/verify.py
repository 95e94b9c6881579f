"""What verification costs beside the export, and how long a planted fault in BERT-base takes to be found.

    python -m benchmarks.verify                       the zoo, then BERT-base
    python -m benchmarks.verify --models 'tag:tiny' --skip-localisation

For every model, in this process, with one thread: export (capture and translation), then verification as a sweep does
it: eager at the example sizes and every check size, the variants, eager in float64, and the file at those of them that
the setting has. Times are of the processor, so that other work on the machine is not counted; the search for the fault
is timed by the clock. The model's construction and the imports are on neither side. Eager's values are made once per
model in a sweep; here one cell pays for all of them. Targets: half of the export's time; 30 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from batch_export import axes
from batch_export.config_schema import VerifyConfig
from batch_export.contract import Contract, TensorContract
from batch_export.errors import BatchExportError
from batch_export.exporter.api import to_onnx, warm
from batch_export.exporter.diagnostics.localise import localise
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec, ProviderSpec
from batch_export.stages import capture, reference, run
from batch_export.stages.workbench import Workbench
from benchmarks import zoo

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
CORE = ExporterSpec("core", CORE_EXPORTER_TARGET)
COST_TARGET = 0.5
SECONDS_TARGET = 30.0


def main(arguments: Sequence[str]) -> int:
    """Prints both tables; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["*"], help="names, globs, tags")
    parser.add_argument("--dynamic", default="static", help="dynamic-shape setting")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--skip-localisation", action="store_true")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warm()
    missed = _costs(asked.models, asked.dynamic, asked.opset) > COST_TARGET
    if not asked.skip_localisation:
        missed |= _localisation(asked.opset) > SECONDS_TARGET
    return int(missed)


def _costs(patterns: Sequence[str], dynamic: str, opset: int) -> float:
    defaults = VerifyConfig()
    variants = (*(f"{axes.SEED}{number + 1}" for number in range(defaults.seeds)), *defaults.special)
    exported, verified = 0.0, 0.0
    print(f"{'model':<22}{'export s':>10}{'eager s':>10}{'file s':>10}{'ratio':>8}")
    for spec in zoo.models(patterns):
        try:
            export_s, eager_s, file_s = _one(replace(spec, variants=variants, oracle=defaults.oracle), dynamic, opset)
        except BatchExportError as error:
            print(f"{spec.name:<22}{error}")
            continue
        exported, verified = exported + export_s, verified + eager_s + file_s
        print(f"{spec.name:<22}{export_s:>10.2f}{eager_s:>10.2f}{file_s:>10.2f}{(eager_s + file_s) / export_s:>8.2f}")
    ratio = verified / exported if exported else 0.0
    print(f"{'all':<22}{exported:>10.2f}{verified:>20.2f}{ratio:>8.2f}   (target {COST_TARGET})")
    return ratio


def _one(spec: ModelSpec, dynamic: str, opset: int) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(spec, dynamic, CORE, Path(folder))
        _ = bench.module
        begun = time.process_time()
        capture.execute(bench)
        program = to_onnx(bench.captured, opset, input_names=axes.input_names(spec))
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        exported = time.process_time()
        made = reference.execute(bench)
        eager = time.process_time()
        outputs = tuple(TensorContract("", fact["dtype"], None) for fact in made.facts["outputs"])
        inputs = tuple(TensorContract(name, "", None) for name in axes.input_names(spec))
        cases = axes.case_indices(spec, dynamic)
        run.execute(path, made.files["reference"], cases, Contract(opset, inputs, outputs), CPU, 1)
        return exported - begun, eager - exported, time.process_time() - eager


def _localisation(opset: int) -> float:
    spec = zoo.models(["bert_base"])[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(spec, "static", CORE, Path(folder))
        capture.execute(bench)
        program = to_onnx(bench.captured, opset)
        gelus = [node for node in program.model.graph if node.op_type == "Gelu"]
        planted = gelus[len(gelus) // 2]
        planted.op_type = "Sigmoid"
        planted.attributes.clear()
        begun = time.perf_counter()
        finding = localise(program, (), bench.inputs(axes.example_sizes(spec)))
        seconds = time.perf_counter() - begun
    if finding is None or finding.onnx_node != planted.name:
        print(f"bert_base: the planted fault was not found: {finding}")
        return float("inf")
    print(f"bert_base: {finding.sentence()}")
    print(f"found in {seconds:.1f} s with {finding.sessions} sessions over {finding.candidates} values (target 30 s)")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
