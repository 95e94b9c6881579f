"""stages/plugin.py and the exporters of peers/: written files are collected, and what goes wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from batch_export import axes
from batch_export.config.schema import VerifyConfig
from batch_export.contract import Contract, TensorContract
from batch_export.errors import LibraryMissingError, TranslationError, UsageError
from batch_export.peers import torch_dynamo, torchscript, transformers_onnx
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, ModelSpec
from batch_export.stages import check, plugin, reference, run, translate
from batch_export.stages import model as model_room
from batch_export.stages.built import built
from batch_export.stages.lent_module import Changes
from batch_export.stages.models_line import models_line

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
INPUTS = (
    InputSpec(("x",), "float32", ("batch", 3)),
    InputSpec(("pair", "first"), "float32", ("batch", 3)),
    InputSpec(("pair", "scale"), constant=2.0),
    InputSpec(("rest", 0), "int64", ("batch",)),
)
MODEL = ModelSpec("nested", "", {}, INPUTS, (AxisSpec("batch", 2, (1, 5)),), output_names=("total", "rows"))


class Nested(nn.Module):
    """Inputs in a dict and a list, with a constant among them, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, pair: dict[str, Any], rest: list[Tensor]) -> tuple[Tensor, Tensor]:
        return self.linear(x) + pair["first"] * pair["scale"], rest[0] + 1


class Bench:
    """What stages see of a workbench."""

    def __init__(self, scratch: Path, target: str, dynamic: str = "full", **arguments: Any) -> None:
        self.model = MODEL
        self.dynamic = dynamic
        self.exporter = ExporterSpec("peer", target, arguments)
        self.scratch = scratch
        torch.manual_seed(0)
        self.module = Nested().eval()
        self.built = built(self.module)
        self.changes: list[Changes] = []

    def returned(self, changes: Changes) -> None:
        self.changes.append(changes)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        batch = sizes["batch"]
        x = torch.arange(3.0 * batch).reshape(batch, 3)
        return {"x": x, "pair": {"first": x / 2, "scale": 2.0}, "rest": [torch.arange(batch)]}


def requested(dynamic: str) -> Contract:
    leaves = [leaf for leaf in INPUTS if leaf.dtype]
    shapes = [tuple(axes.dimension(MODEL, entry, dynamic) for entry in leaf.shape) for leaf in leaves]
    names = axes.input_names(MODEL)
    inputs = tuple(
        TensorContract(name, leaf.dtype, shape) for name, leaf, shape in zip(names, leaves, shapes, strict=True)
    )
    return Contract(18, inputs, (TensorContract("total", "float32", None), TensorContract("rows", "int64", None)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", ["static", "full"])
@pytest.mark.parametrize("peer", ["torch_dynamo", "torchscript"])
def test_a_peer_writes_a_file_that_is_right_at_all_sizes(tmp_path: Path, peer: str, dynamic: str) -> None:
    bench: Any = Bench(tmp_path, f"batch_export.peers.{peer}.export", dynamic)
    written = plugin.execute(bench, 18)
    assert written.failure is None, written.failure
    assert written.model is not None
    assert written.facts["opset"] == 18
    assert written.facts["nodes"] > 0
    contract = requested(dynamic)
    assert check.execute(written.model.onnx, contract).facts["findings"] == []
    evidence = reference.execute(bench).files["reference"]
    cases = axes.case_indices(MODEL, dynamic)
    output = run.execute(written.model.onnx, evidence, cases, contract, CPU, 1)
    assert output.failure is None
    assert len(output.facts["runs"]) == (1 if dynamic == "static" else 3)
    for facts in output.facts["runs"]:
        assert facts["error"] == ""
        assert [output["name"] for output in facts["outputs"]] == ["total", "rows"]
        assert all(output["max_abs"] < 1e-5 for output in facts["outputs"])


def test_a_file_that_fixes_axes_is_not_blamed_under_auto(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, "batch_export.peers.torchscript.export", "static")
    written = plugin.execute(bench, 18)
    assert written.model is not None
    evidence = reference.execute(bench).files["reference"]
    asked = requested("full")
    unasked = Contract(
        18, tuple(TensorContract(value.name, value.dtype, None) for value in asked.inputs), asked.outputs
    )
    runs = run.execute(written.model.onnx, evidence, [0, 1, 2], unasked, CPU, 1).facts["runs"]
    assert [facts["sizes"] for facts in runs] == [{"batch": 2}]
    runs = run.execute(written.model.onnx, evidence, [0, 1, 2], asked, CPU, 1).facts["runs"]
    assert [bool(facts["error"]) for facts in runs] == [False, True, True]


def test_torch_gets_dimensions_for_sums() -> None:
    shapes: dict[str, Any] = {"x": {0: "batch", 1: "past+seq"}, "n": None, "rest": [{}]}
    assert torch_dynamo.with_dims(shapes) == {
        "x": {0: "batch", 1: torch.export.Dim.DYNAMIC}, "n": None, "rest": [{}],
    }  # fmt: skip
    assert torch_dynamo.with_dims(None) is None


def test_dynamic_shapes_become_axes_by_input_name() -> None:
    shapes = {"x": {0: "batch"}, "pair": {"first": {0: "batch", 1: torch.export.Dim.AUTO}, "scale": None}, "rest": [{}]}
    assert torchscript.dynamic_axes(shapes, ["x", "pair_first", "rest_0"]) == {
        "x": {0: "batch"},
        "pair_first": {0: "batch", 1: "pair_first_dim1"},
    }
    assert torchscript.dynamic_axes(None, ["x"]) == {}


def test_a_capture_that_torch_refuses_is_a_capture_failure(tmp_path: Path) -> None:
    class Guarded(Nested):
        def forward(self, x: Tensor, pair: dict[str, Any], rest: list[Tensor]) -> Any:
            return x if float(x.sum()) > 1 else x + 1

    bench: Any = Bench(tmp_path, "batch_export.peers.torch_dynamo.export", "static")
    bench.module = Guarded().eval()
    failure = plugin.execute(bench, 18).failure
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("capture", "TorchCaptureError")
    assert "Traceback" in failure.details
    assert failure.source == f"{__file__}:{_line_of('return x if float(')}"


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


class Broken(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self._inner(x)

    def _inner(self, x: Tensor) -> Tensor:
        raise ValueError("never")


def calls(module: Any, error: type[Exception] | None = None) -> None:
    """An exporter of a user's own: its lines are not the model's."""
    try:
        module(torch.ones(2))
    except ValueError as raised:
        if error is None:
            raise
        raise error("could not export") from raised


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_the_line_is_the_models_and_not_the_exporters(error: type[Exception] | None) -> None:
    with pytest.raises(Exception, match=r"never|could not") as raised:
        calls(Broken(), error)
    assert models_line(raised.value, Broken()) == f"{__file__}:{_line_of('raise ValueError(')}"
    assert models_line(raised.value, torch.nn.Linear(2, 2)) == ""
    quoted = ValueError(f'from user code:\n   File "{__file__}", line 7, in forward\n    x')
    assert models_line(quoted, Broken()) == f"{__file__}:7"
    assert models_line(quoted, torch.nn.Linear(2, 2)) == ""


def writes_with_data(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **rest: Any) -> None:
    """A plug-in that keeps weights beside the model and needs an argument of its own."""
    graph = f'<ir_version: 10, opset_import: ["": {opset_version}]> g (float[n] x) => (float[n] y) {{y = Relu(x)}}'
    onnx.save(onnx.parser.parse_model(graph), path)
    (path.parent / "weights.bin").write_bytes(bytes(rest["size"]))
    assert rest["input_names"] == ["x", "pair_first", "rest_0"]
    assert rest["output_names"] == ["total", "rows"]
    assert rest["dynamic_shapes"]["x"] == {0: "batch"}
    assert args == ()
    assert sorted(kwargs) == ["pair", "rest", "x"]
    module.train()


def writes_nothing(*args: Any, **kwargs: Any) -> None:
    """Returns as if all were well."""


def writes_rubbish(*args: Any, path: Path, **kwargs: Any) -> None:
    """Writes a file that is no model."""
    path.write_bytes(b"\xff\xff\xff")


def writes_a_folder(*args: Any, path: Path, **kwargs: Any) -> None:
    """Keeps weights where nobody looks."""
    writes_with_data(*args, path=path, size=1, **kwargs)
    (path.parent / "weights").mkdir()


def needs_more(*args: Any, **kwargs: Any) -> None:
    """Needs a package that is not there."""
    raise LibraryMissingError("tf2onnx", "exporter needs_more")


def takes_less(module: Any, path: Any) -> None:
    """Not the parameters that an exporter is called with."""


def raises(*args: Any, **kwargs: Any) -> None:
    """Fails in a way of its own."""
    raise ZeroDivisionError("\nno such luck\nat all")


def turns_its_sizes(*args: Any, sizes: list[int], path: Path, **kwargs: Any) -> None:
    """Changes an argument of its own."""
    sizes.reverse()
    writes_with_data(*args, path=path, size=sizes[0], **kwargs)


def test_a_plug_in_that_changes_an_argument_does_not_change_the_config(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.turns_its_sizes", sizes=[1, 2])
    assert plugin.execute(bench, 20).model is not None
    assert bench.exporter.arguments == {"sizes": [1, 2]}


def test_files_beside_the_model_are_its_external_data(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.writes_with_data", size=12)
    for opset in (18, 20, 20):
        output = plugin.execute(bench, opset)
        assert output.model is not None
        assert output.facts["opset"] == opset
        assert [(name, Path(path).stat().st_size) for name, path in output.model.external.items()] == [
            ("weights.bin", 12)
        ]
        assert not bench.module.training
        assert bench.changes[-1].is_same  # training mode was put back


@pytest.mark.parametrize(
    ("target", "error", "sentence"),
    [
        (
            "writes_nothing",
            TranslationError,
            "exporter 'peer' returned, but wrote no file model.onnx. Next step: write the",
        ),
        ("writes_rubbish", TranslationError, "exporter 'peer' wrote a file that is not an ONNX model"),
        (
            "writes_a_folder",
            TranslationError,
            "exporter 'peer' left 'weights' beside the model, which is not a plain file",
        ),
        ("needs_more", LibraryMissingError, "exporter needs_more needs the package 'tf2onnx'"),
        ("nothing", UsageError, "has no 'nothing'"),
        ("CPU", UsageError, "is a ProviderSpec, which cannot be called"),
        (
            "takes_less",
            UsageError,
            "takes (module, path), but an exporter is called as f(module, args, kwargs, *, path, opset_version, "
            "dynamic_shapes, input_names, output_names): multiple values for argument 'path'. Next step:",
        ),
    ],
)
def test_a_plug_in_that_breaks_the_rules_is_named(
    tmp_path: Path, target: str, error: type[Exception], sentence: str
) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.{target}")
    with pytest.raises(error) as caught:
        plugin.execute(bench, 18)
    assert sentence in str(caught.value)


def test_what_a_plug_in_raises_is_a_failure_under_its_own_class(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.raises")
    failure = plugin.execute(bench, 18).failure
    assert failure is not None
    assert (failure.stage, failure.error_class, failure.message) == ("translate", "ZeroDivisionError", "no such luck")


def exits(*args: Any, **kwargs: Any) -> None:
    """Ends as a script does."""
    raise SystemExit(0)


def is_interrupted(*args: Any, **kwargs: Any) -> None:
    """Ends as nobody asked it to."""
    raise KeyboardInterrupt


def runs_the_model(module: Any, args: Any, kwargs: Any, **wanted: Any) -> None:
    """Calls forward, as a tracer does."""
    module(**kwargs)


@pytest.mark.parametrize(
    ("target", "error_class", "sentence"),
    [
        ("exits", "SystemExit", "exporter 'peer' called sys.exit(0). Next step: let it return"),
        ("is_interrupted", "KeyboardInterrupt", "exporter 'peer' raised KeyboardInterrupt. Next step: let it return"),
    ],
)
def test_an_exporter_that_would_end_the_process_is_named(
    tmp_path: Path, target: str, error_class: str, sentence: str
) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.{target}")
    failure = plugin.execute(bench, 18).failure
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("translate", error_class)
    assert failure.message.startswith(sentence)


def test_a_model_that_would_end_the_process_while_it_is_exported_is_named_with_its_line(tmp_path: Path) -> None:
    class Leaving(Nested):
        def forward(self, x: Tensor, pair: dict[str, Any], rest: list[Tensor]) -> Any:
            raise SystemExit("enough")

    bench: Any = Bench(tmp_path, f"{__name__}.runs_the_model")
    bench.module = Leaving()
    failure = plugin.execute(bench, 18).failure
    assert failure is not None
    line = _line_of('raise SystemExit("enough")')
    assert failure.source == f"{__file__}:{line}"
    assert failure.message.startswith(f"the model's code (at {failure.source}), which exporter 'peer' ran, called sys")


def folds(module: Any, *args: Any, **wanted: Any) -> None:
    """Changes the weights before it exports, leaves training mode on and another default dtype."""
    module.linear.weight.data.mul_(1.5)
    module.train()
    torch.set_default_dtype(torch.float64)
    writes_with_data(module, *args, size=1, **wanted)


def test_what_an_exporter_changes_in_the_model_is_a_fact_and_the_module_is_let_go(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, f"{__name__}.folds")
    output = plugin.execute(bench, 18)
    assert output.facts["changed"] == {"weights": ["linear.weight"], "modes": ["linear", "the model"]}
    assert [changes.is_same for changes in bench.changes] == [False]
    assert not bench.module.linear.training
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("export", "must be `package.module.function`"),
        ("no_such_package.export", "there is no module 'no_such_package'"),
    ],
)
def test_a_target_that_cannot_be_imported_is_a_usage_error(target: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plugin.resolve(target)


@pytest.mark.parametrize(
    ("target", "argument", "said"),
    [
        ("batch_export.peers.torch_dynamo.export", "optimise", "has no argument 'optimise'; did you mean 'optimize'?"),
        ("batch_export.peers.torchscript.export", "do_constant_foldin", "did you mean 'do_constant_folding'?"),
        (f"{__name__}.named_alone", "sise", "exporter 'plug' has no argument 'sise'; did you mean 'size'?"),
        (f"{__name__}.named_alone", "zzz", "has no argument 'zzz'; there are size. Next step: correct its config"),
        (f"{__name__}.without_any", "zzz", "has no argument 'zzz', nor any of its own. Next step: correct its config"),
    ],
)
def test_a_misspelt_argument_of_an_exporter_gets_the_nearest_name(
    tmp_path: Path, target: str, argument: str, said: str
) -> None:
    bench: Any = Bench(tmp_path, target)
    bench.exporter = ExporterSpec("plug", target, {argument: True})
    with pytest.raises(UsageError) as caught:
        plugin.execute(bench, 18)
    assert said in str(caught.value)


def named_alone(
    module: Any, args: Any, kwargs: Any, *, path: Any, opset_version: Any, dynamic_shapes: Any, input_names: Any,
    output_names: Any, size: int = 1,
) -> None:  # fmt: skip
    """Says each of its arguments."""


def without_any(
    module: Any, args: Any, kwargs: Any, *, path: Any, opset_version: Any, dynamic_shapes: Any, input_names: Any,
    output_names: Any,
) -> None:  # fmt: skip
    """Has none of its own."""


def test_a_misspelt_argument_of_our_own_exporter_is_found_before_the_translation(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, "batch_export.exporter")
    bench.exporter = ExporterSpec("mine", "batch_export.exporter", {"optimise": True})
    bench.captured = object()
    with pytest.raises(UsageError, match=r"exporter 'mine' has no argument 'optimise'; did you mean 'optimize'\?"):
        translate.execute(bench, 18)


@pytest.mark.parametrize("dynamic", ["static", "full"])
def test_the_exporter_of_transformers_gives_the_names_that_were_asked_for(tmp_path: Path, dynamic: str) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.exporters")
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = transformers.BertModel(transformers.BertConfig(intermediate_size=8, **sizes), add_pooling_layer=False).eval()
    inputs = {name: torch.ones(2, 3, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
    free = {name: {0: "batch", 1: "seq"} for name in inputs} if dynamic == "full" else None
    path = tmp_path / "model.onnx"
    transformers_onnx.export(
        made, (), inputs, path=path, opset_version=20, dynamic_shapes=free, input_names=["ids", "mask"],
        output_names=["states"],
    )  # fmt: skip
    file = onnx.load(path, load_external_data=False)
    dims = [[dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in file.graph.input]
    assert dims == ([["batch", "seq"]] * 2 if free else [[2, 3]] * 2)
    session = onnxruntime.InferenceSession(path)
    for batch, length in ((2, 3), (5, 7)) if free else ((2, 3),):
        given = {name: torch.ones(batch, length, dtype=torch.int64) for name in inputs}
        (states,) = session.run(
            ["states"], {"ids": given["input_ids"].numpy(), "mask": given["attention_mask"].numpy()}
        )
        torch.testing.assert_close(torch.from_numpy(states), made(**given).last_hidden_state.detach())


DECIDED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "all true": lambda x, mask, ids: x * 2 if mask.all() else x * mask,
    "none true": lambda x, mask, ids: x * 2 if not mask.any() else x * mask,
    "a sum": lambda x, mask, ids: x * 2 if x.sum() > 0 else x,
    "all positive": lambda x, mask, ids: x * 2 if x.min() > 0 else x,
    "all negative": lambda x, mask, ids: x + 2 if x.max() < 0 else x,
    "all the last": lambda x, mask, ids: x * 2 if (ids == 6).all() else x * ids[:, None],
    "all the first": lambda x, mask, ids: x * 2 if (ids == 0).all() else x + ids[:, None],
}


class Deciding(nn.Module):
    """A decision by data that comes out alike for most draws."""

    def __init__(self, decided: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.decided = decided

    def forward(self, x: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        return self.decided(x, mask, ids)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DECIDED)
def test_a_branch_of_the_example_is_found_by_special_values(tmp_path: Path, name: str) -> None:
    inputs = (
        InputSpec(("x",), "float32", (4, 3)),
        InputSpec(("mask",), "bool", (4, 3)),
        InputSpec(("ids",), "int64", (4,), low=0, high=7),
    )
    bench: Any = Bench(tmp_path, "batch_export.peers.torchscript.export", "static")
    bench.module = Deciding(DECIDED[name]).eval()
    bench.model = ModelSpec("deciding", "", {}, inputs, variants=tuple(VerifyConfig().special), output_names=("out",))
    bench.inputs = partial(model_room.example_inputs, bench.model)
    written = plugin.execute(bench, 18)
    assert written.model is not None
    asked = tuple(TensorContract(leaf.path[0], leaf.dtype, leaf.shape) for leaf in inputs)
    contract = Contract(18, asked, (TensorContract("out", "float32", None),))
    evidence = reference.execute(bench).files["reference"]
    runs = run.execute(written.model.onnx, evidence, axes.case_indices(bench.model, "static"), contract, CPU, 1).facts[
        "runs"
    ]
    worst = {facts.get("variant", ""): facts["outputs"][0]["max_abs"] for facts in runs}
    assert set(worst) == {"", *VerifyConfig().special}
    assert worst[""] == 0
    assert max(worst.values()) > 0.01
