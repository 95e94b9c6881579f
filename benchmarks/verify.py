"""What verification costs beside the export, and how long a planted fault in BERT-base takes to be found.

    python -m benchmarks.verify                       the zoo, then BERT-base
    python -m benchmarks.verify --models 'tag:tiny' --skip-localisation
    python -m benchmarks.verify --dynamic static      one setting, which pays for eager's values of all

For every model, in this process, with one thread, the steps of a sweep over the settings (those of the main job, static
and full, at one opset). The export: capture and translation at each setting. The verification: eager at every size and
with every variant, once for all settings; each setting's file at its own of them; float64 where the plan asks for it.
Times are of the processor, so that other work on the machine is not counted; the search for the fault is timed by the
clock. The model's construction and the imports are on neither side. The ratio is verification over export: the target,
half, is for the sums over the zoo, in which the two large models weigh most; the median over the models is printed
beside it. The fault is to be found in 30 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from batch_export import axes
from batch_export.config.schema import VerifyConfig
from batch_export.errors import BatchExportError
from batch_export.exporter.api import to_onnx, warm
from batch_export.exporter.diagnostics.localise import localise
from batch_export.judge import oracle_need
from batch_export.plan.walk import requested_contract
from batch_export.record import Cell
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec
from batch_export.stages import capture, oracle, reference, run, translate
from batch_export.stages.output import StageOutput
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
    parser.add_argument("--dynamic", nargs="+", default=["static", "full"], help="dynamic-shape settings")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--skip-localisation", action="store_true")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warm()
    missed = _costs(asked.models, asked.dynamic, asked.opset) > COST_TARGET
    if not asked.skip_localisation:
        missed |= _localisation(asked.opset) > SECONDS_TARGET
    return int(missed)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor for one model: all its exports, and what verifying them takes."""

    export: float
    eager: float
    file: float
    float64: float

    @property
    def verification(self) -> float:
        """Eager, the files, and float64."""
        return self.eager + self.file + self.float64

    @property
    def ratio(self) -> float:
        """Verification over export."""
        return self.verification / self.export


def _costs(patterns: Sequence[str], settings: Sequence[str], opset: int) -> float:
    defaults = VerifyConfig()
    variants = (*(f"{axes.SEED}{number + 1}" for number in range(defaults.seeds)), *defaults.special)
    costs: list[Cost] = []
    print(f"{'model':<22}{'export s':>10}{'eager s':>10}{'file s':>10}{'float64 s':>11}{'ratio':>8}")
    for spec in zoo.models(patterns):
        own = [setting for setting in settings if axes.supports(spec, setting) is None]
        try:
            cost = _one(replace(spec, variants=variants, oracle=defaults.oracle), own, opset)
        except BatchExportError as error:
            print(f"{spec.name:<22}{error}")
            continue
        costs.append(cost)
        seconds = f"{cost.export:>10.2f}{cost.eager:>10.2f}{cost.file:>10.2f}{cost.float64:>11.2f}"
        print(f"{spec.name:<22}{seconds}{cost.ratio:>8.2f}", flush=True)
    if not costs:
        return 0.0
    together = Cost(*(sum(getattr(cost, field.name) for cost in costs) for field in fields(Cost)))
    seconds = f"{together.export:>10.2f}{together.eager:>10.2f}{together.file:>10.2f}{together.float64:>11.2f}"
    print(f"{'sum of ' + str(len(costs)):<22}{seconds}{together.ratio:>8.2f}   (target {COST_TARGET})")
    print(f"{'median of the ratios':<63}{statistics.median(cost.ratio for cost in costs):>8.2f}")
    return together.ratio


def _cell(spec: ModelSpec, setting: str, opset: int) -> Cell:
    return Cell(spec.name, setting, opset, CPU.name, CORE.name)


def _one(spec: ModelSpec, settings: Sequence[str], opset: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(_cell(spec, settings[0], opset), spec, CORE, Path(folder))
        _ = bench.module
        begun = time.process_time()
        made = reference.execute(bench)
        export, eager, file, float64 = 0.0, time.process_time() - begun, 0.0, 0.0
        known: dict[int, Path] = {}
        for setting in settings:
            bench.dynamic = setting
            begun = time.process_time()
            capture.execute(bench)
            translated = translate.execute(bench, opset)
            export += time.process_time() - begun
            assert translated.model is not None
            seconds = _verified(bench, translated.model.onnx, made, opset, known)
            file, float64 = file + seconds[0], float64 + seconds[1]
        return Cost(export, eager, file, float64)


def _verified(
    bench: Workbench, path: Path, made: StageOutput, opset: int, known: dict[int, Path]
) -> tuple[float, float]:
    """Runs a file as the plan of a cell does; returns the seconds for the file, and for float64 with what it entails.

    `known` are values in float64 that an earlier setting asked for.
    """
    spec, values = bench.model, made.files["reference"]
    contract = requested_contract(spec, bench.dynamic, opset, made.facts)
    cases = axes.case_indices(spec, bench.dynamic)
    begun = time.process_time()
    rough = _in_float64(bench, values, oracle_need.beforehand(spec, made.facts, cases), known)
    asked = time.process_time()
    ran = run.execute(path, values, cases, contract, CPU, 1, rough)
    file = time.process_time()
    others = [case for case in cases if case not in dict(rough)]
    doubtful = _in_float64(bench, values, oracle_need.doubtful(spec, made.facts, others, ran.facts), known)
    if doubtful:
        run.execute(path, values, [case for case, _ in doubtful], contract, CPU, 1, doubtful)
    bench.oracle = None
    return file - asked, asked - begun + time.process_time() - file


def _in_float64(bench: Workbench, values: Path, cases: Sequence[int], known: dict[int, Path]) -> list[tuple[int, Path]]:
    for case in cases:
        if case not in known:
            made = oracle.execute(bench, values, case).files
            if "oracle" in made:
                known[case] = made["oracle"].rename(bench.scratch / f"oracle{case}.tensors")
    return [(case, known[case]) for case in cases if case in known]


def _localisation(opset: int) -> float:
    spec = zoo.models(["bert_base"])[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(_cell(spec, "static", opset), spec, CORE, Path(folder))
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
