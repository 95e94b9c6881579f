"""Errors of the exporter: one class for each stage, and sentences that name node, operator, line and next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from batch_export import OnnxExporterError, export
from batch_export.errors import (
    CaptureError,
    DynamicShapeError,
    MissingOperatorError,
    OpsetError,
    OptimisationError,
    Place,
    SaveError,
    TranslationError,
    VerificationError,
)

X = torch.ones(2, 3)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"# {text}"))


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        (CaptureError, "capture"),
        (DynamicShapeError, "dynamic"),
        (TranslationError, "translate"),
        (MissingOperatorError, "translate"),
        (OpsetError, "opset"),
        (OptimisationError, "translate"),
        (SaveError, "translate"),
        (VerificationError, "mismatch"),
    ],
)
def test_one_class_for_each_stage(kind: type[OnnxExporterError], stage: str) -> None:
    assert issubclass(kind, OnnxExporterError)
    assert kind.stage == stage


@torch.library.custom_op("batch_export_tests::first_unknown", mutates_args=())
def first_unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("batch_export_tests::second_unknown", mutates_args=())
def second_unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@first_unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@second_unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Unknown(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.batch_export_tests.first_unknown(x)  # the first unknown operator
        return torch.ops.batch_export_tests.second_unknown(torch.relu(y))


def test_missing_operators_are_listed_all_at_once_with_the_first_ones_place() -> None:
    with pytest.raises(MissingOperatorError) as caught:
        export(Unknown(), (X,))
    error = caught.value
    assert len(error.operators) == 2
    for name in ("batch_export_tests.first_unknown", "batch_export_tests.second_unknown"):
        assert any(name in operator for operator in error.operators)
        assert name in str(error)
    assert error.source == f"{__file__}:{line_of('the first unknown operator')}"
    assert error.node == "first_unknown"
    assert "custom_translation_table" in (error.next_step or "")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"aten.mul": lambda x, y: x}, "'aten.mul' is not an operator.*torch.ops.aten.add.Tensor"),
        ({torch.relu: lambda x: x}, "relu.* is not an operator.*torch.ops.aten.add.Tensor"),
        ({torch.nn.functional.gelu: lambda x: x}, "gelu.* is not an operator.*torch.ops.aten.add.Tensor"),
        ({torch.ops.aten.mul: lambda x, y: x}, "torch.ops.aten.mul stands for several .*torch.ops.aten.mul.Tensor"),
        ({torch.ops.aten.mul.Tensor: "mul"}, "aten::mul.Tensor has no function to call, but 'mul'"),
        ({torch.ops.aten.mul.Tensor: []}, r"aten::mul.Tensor has no function to call, but \[\]"),
    ],
)
def test_a_translation_table_that_would_not_be_used_is_refused(table: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        export(Scaled(), (X,), custom_translation_table=table)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 3  # the multiplication


def test_a_translation_that_fails_names_the_node_its_operator_and_its_line() -> None:
    def broken(x: Any, y: Any) -> Any:
        raise KeyError("gone")

    with pytest.raises(TranslationError) as caught:
        export(Scaled(), (X,), custom_translation_table={torch.ops.aten.mul.Tensor: broken})
    error = caught.value
    assert "KeyError: 'gone'" in str(error)
    assert (error.node, error.operator) == ("mul", "aten.mul.Tensor")
    assert error.source == f"{__file__}:{line_of('the multiplication')}"
    assert str(error).endswith(f"Next step: {error.next_step}")


def test_an_error_is_located_once_and_keeps_what_it_carries() -> None:
    error = MissingOperatorError("no translation", ("aten::x",), operator="Neg", next_step="write one")
    assert error.located_at(Place("inner", "aten.x.default", "model.py:3")) is error
    error.located_at(Place("outer", "cond", None))
    assert (error.node, error.operator, error.operators) == ("inner", "aten.x.default", ("aten::x",))
    assert str(error) == ("no translation (node inner, operator aten.x.default, at model.py:3). Next step: write one")


class Refused(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("this model never works")


def test_the_first_strategy_is_the_one_shown_and_every_attempt_is_kept() -> None:
    with pytest.raises(
        CaptureError, match=r"torch\.export\(strict=False\) said ValueError: this model never works"
    ) as caught:
        export(Refused(), (X,))
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert [attempt.strategy for attempt in error.attempts] == [  # type: ignore[attr-defined]
        "torch.export(strict=False)",
        "torch.export(strict=True)",
        "draft_export",
        "torch.jit.trace",
    ]


def test_a_line_that_announces_is_told_with_what_it_announces() -> None:
    class Announcing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("Got an error:\n\nthe real one\nand more")

    with pytest.raises(CaptureError, match=r"said ValueError: Got an error: the real one \("):
        export(Announcing(), (torch.ones(2),))


def test_a_result_whose_size_depends_on_data_is_no_matter_of_dynamic_shapes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(x.T, x.T)[0]

    with pytest.raises(CaptureError, match=r"could not be captured"):
        export(function, (torch.ones(2, 3),))
    program = export(lambda x: torch.nn.functional.one_hot(x, 5), (torch.tensor([1, 3]),))
    assert program(torch.tensor([4, 0]))[0].shape == (2, 5)
    program = export(lambda x: torch.nn.functional.one_hot(x), (torch.tensor([1, 3]),))
    assert program(torch.tensor([5, 0]))[0].shape == (2, 6)


def test_inputs_that_do_not_fit_forward() -> None:
    with pytest.raises(CaptureError, match=r"the example inputs do not fit forward\(x\): too many"):
        export(Scaled(), (X, X))
    with pytest.raises(CaptureError, match="missing a required argument: 'x'"):
        export(Scaled())


def test_a_model_that_is_no_model() -> None:
    with pytest.raises(CaptureError, match=r"the model is a int.*pass a torch\.nn\.Module"):
        export(5, (X,))


def test_names_that_do_not_fit() -> None:
    with pytest.raises(OnnxExporterError, match=r"2 input names for 1 inputs.*the inputs are x"):
        export(Scaled(), (X,), input_names=["a", "b"])
    with pytest.raises(OnnxExporterError, match=r"3 output names for 2 outputs.*the outputs are add, mul"):
        export(lambda x: (x + 1, None, x * 2), (X,), output_names=["a", "b", "c"])
    with pytest.raises(OnnxExporterError, match="output_names has a name twice: a, a"):
        export(lambda x: (x + 1, x + 2), (X,), output_names=["a", "a"])


def test_a_pass_that_fails_is_named() -> None:
    class Failing:
        name = "failing"

        def __call__(self, model: Any) -> Any:
            raise ValueError("no")

    with pytest.raises(OptimisationError, match=r"the optimiser's pass 'failing' failed: ValueError: no"):
        export(Scaled(), (X,), passes=[Failing()])


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_that_matters_is_exported_or_refused(mode: bool) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3)).train(mode)
    x = torch.randn(5, 3)
    program = export(model, (x,))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    results = program(x)
    torch.testing.assert_close(results[0], model(x), atol=1e-5, rtol=1e-5)
    changed = {target: kind for kind, target in program.output_kinds if target}
    if mode:
        assert changed == {
            "0.running_mean": "BUFFER_MUTATION",
            "0.running_var": "BUFFER_MUTATION",
            "0.num_batches_tracked": "BUFFER_MUTATION",
        }
        for name in changed:
            torch.testing.assert_close(results.mutated[name], model.state_dict()[name], atol=1e-5, rtol=1e-5)
    else:
        assert changed == {}
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_an_input_that_the_model_changes_is_an_output() -> None:
    def grow(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    program = export(grow, (X.clone(),))
    assert program.output_kinds == [("USER_OUTPUT", ""), ("USER_INPUT_MUTATION", "x")]
    given = torch.randn(2, 3)
    results = program(given)
    torch.testing.assert_close(results.mutated, {"x": given * 2})
    torch.testing.assert_close(list(results), [given * 2 + 1])


def test_a_function_that_is_a_model_and_a_failed_capture_have_their_lines() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x[:, :2])[0].real  # the missing operator

    with pytest.raises(MissingOperatorError) as missing:
        export(function, (X,))
    assert missing.value.source == f"{__file__}:{line_of('the missing operator')}"

    def solved(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(x.T, x.T)[0]  # a rank by data

    with pytest.raises(CaptureError, match=r"torch\.export\(strict=False\) said") as failed:
        export(solved, (X,))
    assert failed.value.source == f"{__file__}:{line_of('a rank by data')}"


@pytest.mark.parametrize(
    ("model", "given", "options", "said"),
    [
        (torch.nn.ReLU, X, {}, r"the model is the class ReLU.*pass an instance: ReLU\("),
        (torch.nn.ReLU(), X.numpy(), {}, r"the input input is a numpy array.*torch\.from_numpy"),
        (torch.nn.ReLU(), X, {"input_names": "x"}, r"input_names is 'x'.*give a list of names"),
        (torch.nn.ReLU(), X, {"output_names": [""]}, r"output_names is \[''\].*none of them empty"),
    ],
    ids=["class", "array", "a string of names", "an empty name"],
)
def test_inputs_of_another_kind_than_asked_for(model: Any, given: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OnnxExporterError, match=said):
        export(model, (given,), **options)
