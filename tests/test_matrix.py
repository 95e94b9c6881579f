"""batch_export.plan.matrix: which cells there are, in which order, and why some will not run."""

from __future__ import annotations

import cProfile
import pstats
from dataclasses import replace

import pytest

from batch_export.errors import UsageError
from batch_export.plan.matrix import Installed, expand
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import AxisSpec, Exclusion, ExporterSpec, InputSpec, MatrixSpec, ModelSpec

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", opsets=(7, 26))
CUDA = ProviderSpec("cuda", "onnxruntime", "CUDAExecutionProvider", opsets=(7, 26))
REFERENCE = ProviderSpec("reference", "reference", opsets=(1, 28))
CORE = ExporterSpec("core", "batch_export.exporter")
TORCH = ExporterSpec("torch", "batch_export.peers.torch_dynamo.export")
HERE = Installed({"onnxruntime": {"CPUExecutionProvider"}}, lambda name: name in ("onnx", "transformers"))


def model(name: str, *axes: str, requires: tuple[str, ...] = ()) -> ModelSpec:
    return ModelSpec(
        name=name,
        target=f"models.tests.{name}",
        arguments={},
        inputs=(InputSpec(("x",), "float32", (*axes, 8)),),
        axes=tuple(AxisSpec(axis, 2, (1, 5)) for axis in axes),
        requires=requires,
    )


MATRIX = MatrixSpec(
    models=(model("mlp", "batch"), model("bert", "batch", "seq")),
    opsets=(18, 20),
    dynamic=("static", "full"),
    providers=(CPU,),
    exporters=(CORE,),
)


def skips(matrix: MatrixSpec, installed: Installed = HERE) -> dict[str, str]:
    return {item.cell.name: item.skip for item in expand(matrix, installed)}


def test_cells_come_model_by_model_so_that_one_capture_serves_neighbours() -> None:
    names = [item.cell.name for item in expand(MATRIX, HERE)]
    assert names == [
        "mlp/static/opset18/cpu/core",
        "mlp/static/opset20/cpu/core",
        "mlp/full/opset18/cpu/core",
        "mlp/full/opset20/cpu/core",
        "bert/static/opset18/cpu/core",
        "bert/static/opset20/cpu/core",
        "bert/full/opset18/cpu/core",
        "bert/full/opset20/cpu/core",
    ]


def test_a_cell_points_at_its_own_specs() -> None:
    matrix = replace(MATRIX, providers=(CPU, REFERENCE), exporters=(CORE, TORCH))
    planned = expand(matrix, HERE)
    assert len(planned) == len({item.cell for item in planned}) == 2 * 2 * 2 * 2 * 2
    for item in planned:
        assert (item.model.name, item.provider.name, item.exporter.name) == (
            item.cell.model,
            item.cell.provider,
            item.cell.exporter,
        )
        assert item.skip == ""


def test_a_provider_that_is_not_installed_skips_its_cells_only() -> None:
    found = skips(replace(MATRIX, providers=(CPU, CUDA)))
    assert found["mlp/static/opset18/cpu/core"] == ""
    assert "no CUDAExecutionProvider" in found["mlp/static/opset18/cuda/core"]


def test_required_providers_turn_the_skip_into_an_error() -> None:
    with pytest.raises(UsageError, match=r"cuda is not installed.*require_providers=true.*Next step"):
        expand(replace(MATRIX, providers=(CPU, CUDA), require_providers=True), HERE)


def test_the_reference_evaluator_needs_onnx() -> None:
    without = Installed({}, lambda _: False)
    assert (
        "needs the package onnx"
        in skips(replace(MATRIX, providers=(REFERENCE,)), without)["mlp/static/opset18/reference/core"]
    )


def test_an_opset_that_the_provider_does_not_load_is_skipped() -> None:
    narrow = replace(CPU, opsets=(7, 19))
    found = skips(replace(MATRIX, providers=(narrow,)))
    assert found["mlp/static/opset18/cpu/core"] == ""
    assert found["mlp/static/opset20/cpu/core"] == "provider cpu loads opsets 7 to 19, not 20"


def test_an_opset_that_one_exporter_does_not_take_is_skipped_there() -> None:
    early = ExporterSpec("early", "peers.early", opsets=(7, 19))
    found = skips(replace(MATRIX, exporters=(CORE, early)))
    assert found["mlp/static/opset18/cpu/early"] == found["mlp/static/opset20/cpu/core"] == ""
    assert found["mlp/static/opset20/cpu/early"] == "exporter early takes opsets 7 to 19, not 20"


def test_a_missing_library_is_named() -> None:
    matrix = replace(MATRIX, models=(model("bert", "batch", requires=("transformers", "timm")),))
    assert set(skips(matrix).values()) == {"the model needs the package timm, which is not installed"}


def test_a_setting_that_the_model_has_no_axis_for_is_skipped() -> None:
    found = skips(replace(MATRIX, dynamic=("seq",)))
    assert "no axis 'seq'" in found["mlp/seq/opset18/cpu/core"]
    assert found["bert/seq/opset18/cpu/core"] == ""


@pytest.mark.parametrize(
    ("exclusion", "left_out"),
    [
        (Exclusion("slow", model="b*"), 4),
        (Exclusion("slow", opset="18"), 4),
        (Exclusion("slow", model="bert", opset="2?", dynamic="full"), 1),
        (Exclusion("slow", exporter="torch"), 0),
        (Exclusion("slow", model="BERT"), 0),
    ],
)
def test_exclusions_are_globs_over_the_axes(exclusion: Exclusion, left_out: int) -> None:
    found = skips(replace(MATRIX, exclude=(exclusion,)))
    assert list(found.values()).count("excluded: slow") == left_out


def test_excluding_everything_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"matrix is empty: matrix\.exclude leaves no cell"):
        expand(replace(MATRIX, exclude=(Exclusion("no"),)), HERE)
    names = tuple(model.name for model in MATRIX.models)
    shard = replace(MATRIX, exclude=(Exclusion("no"),), chosen=(*names, "elsewhere"))
    assert set(skips(shard).values()) == {"excluded: no"}, "another shard may have what is left"


def test_ten_thousand_cells_take_a_few_calls_each() -> None:
    matrix = replace(
        MATRIX,
        models=tuple(model(f"m{index}", "batch") for index in range(250)),
        opsets=tuple(range(18, 23)),
        providers=(CPU, CUDA),
        exporters=(CORE, TORCH),
        exclude=(Exclusion("slow", model="m1*", opset="2?"),),
    )
    counted = cProfile.Profile()
    planned = counted.runcall(expand, matrix, HERE)
    assert len(planned) == 10_000
    assert pstats.Stats(counted).total_calls < 60 * len(planned)  # type: ignore[attr-defined]  # 34; not seconds: they hang on the machine


def test_a_runtime_that_cannot_inline_functions_skips_cells_whose_files_have_some() -> None:
    tract = ProviderSpec("tract", "tract", env="tract")
    functions = replace(CORE, name="functions", arguments={"modules_as_functions": True})
    found = skips(replace(MATRIX, providers=(CPU, tract), exporters=(CORE, functions)))
    assert found["mlp/static/opset18/tract/core"] == found["mlp/static/opset18/cpu/functions"] == ""
    reason = "exporter functions writes functions (modules_as_functions), and tract cannot inline them"
    assert found["mlp/static/opset18/tract/functions"] == reason
