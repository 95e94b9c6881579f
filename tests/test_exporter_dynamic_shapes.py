"""Every way to ask for dynamic axes, and that nothing that was asked for is lost in silence."""

from __future__ import annotations

import warnings
from typing import Any

import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import AdditionalInputs, Dim, ShapesCollection

from batch_export import export
from batch_export.calling.axis_words import AxisExpression
from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.assertions import without_assertions
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.translate import program as translate

pytestmark = pytest.mark.sampled


class Plus(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Separate(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, y * 3


PAIR = (torch.ones(4, 3), torch.ones(4, 3))
BATCH = Dim("batch")


def collection(first: Any, second: Any) -> ShapesCollection:
    found = ShapesCollection()
    found[PAIR[0]], found[PAIR[1]] = first, second
    return found


def additional() -> AdditionalInputs:
    found = AdditionalInputs()
    found.add((torch.ones(7, 3), torch.ones(7, 3)))
    return found


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (({0: "batch"}, {0: "batch"}), True),
        ([{0: "batch"}, {0: "batch"}], True),
        ({"x": {0: "batch"}, "y": {0: "batch"}}, True),
        ((["batch", None], ["batch", None]), True),
        ((("batch", 3), ("batch", 3)), True),
        (({-2: "batch"}, {0: "batch", 1: None}), True),
        (({0: BATCH}, {0: BATCH}), True),
        (({0: Dim("batch", min=2, max=64)}, {0: "batch"}), True),
        (({0: "batch", 1: Dim.STATIC}, {0: Dim.DYNAMIC}), True),
        (({0: "batch"}, {0: Dim.AUTO}), True),
        (({0: Dim.AUTO}, {0: "batch"}), True),
        (({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), False),
        (({0: Dim.AUTO}, {0: Dim.AUTO}), False),
        (collection({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), False),
        (additional(), False),
        (True, False),
    ],
    ids=lambda value: type(value).__name__ if " at 0x" in str(value) else str(value),
)
def test_every_form_makes_the_first_axis_dynamic(form: Any, named: bool) -> None:
    program = export(Plus(), PAIR, dynamic_shapes=form)

    first, second = (value.shape for value in program.model.graph.inputs)
    (output,) = (value.shape for value in program.model.graph.outputs)
    assert isinstance(first[0], ir.SymbolicDim)
    assert first[0] == second[0] == output[0]
    if named:
        assert first[0].value == "batch"
    torch.testing.assert_close(program(torch.ones(9, 3), torch.ones(9, 3))[0], 2 * torch.ones(9, 3))


@pytest.mark.parametrize(
    "form", [None, False, (None, None), {}, (), [], ({}, None), ({0: None}, {0: Dim.STATIC})], ids=str
)
def test_forms_that_ask_for_nothing(form: Any) -> None:
    program = export(Plus(), PAIR, dynamic_shapes=form)
    assert [value.shape for value in program.model.graph.inputs] == [(4, 3), (4, 3)]


def test_the_documented_nested_example() -> None:
    class Nested(torch.nn.Module):
        def forward(self, tensor_x: torch.Tensor, input_dict: dict[str, Any], input_list: list[Any]) -> torch.Tensor:
            return torch.cat([tensor_x, input_dict["tensor_x"], input_list[0]], dim=1)

    inputs = (torch.rand(97, 8), {"tensor_x": torch.rand(97, 8)}, [torch.rand(97, 8)])
    program = export(
        Nested(),
        inputs,
        dynamic_shapes=({0: "batch_size"}, {"tensor_x": {0: "batch_size"}}, [{0: "batch_size"}]),
        input_names=["tensor_input", "tensor_x", "list_input_index_0"],
        output_names=["output"],
        dynamo=True,
    )
    assert [value.name for value in program.model.graph.inputs] == ["tensor_input", "tensor_x", "list_input_index_0"]
    for value in program.model.graph.inputs:
        assert value.shape == ("batch_size", 8)
    assert program.model.graph.outputs[0].shape == ("batch_size", 24)


def test_equal_names_share_an_axis_that_the_model_does_not_relate() -> None:
    program = export(Separate(), PAIR, dynamic_shapes=({0: "batch"}, {0: "batch"}))
    assert [value.shape for value in program.model.graph.outputs] == [("batch", 3), ("batch", 3)]


class EveryOther(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y[::2]


@pytest.mark.parametrize(
    "form", [({0: BATCH}, {0: 2 * BATCH}), ({0: "batch"}, {0: AxisExpression("2*batch")})], ids=str
)
def test_derived_axes_are_expressions(form: Any) -> None:
    inputs = (torch.ones(4, 3), torch.ones(8, 3))
    program = export(EveryOther(), inputs, dynamic_shapes=form)
    assert [value.shape for value in program.model.graph.inputs] == [("batch", 3), ("2*batch", 3)]
    torch.testing.assert_close(program(torch.ones(5, 3), torch.ones(10, 3))[0], 2 * torch.ones(5, 3))


class Longer(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:1]]) + y


def test_a_name_survives_on_an_axis_that_follows_from_another() -> None:
    inputs = (torch.ones(4, 3), torch.ones(5, 3))
    program = export(Longer(), inputs, dynamic_shapes=({0: Dim.AUTO}, {0: "length"}))
    assert program.model.graph.inputs[1].shape == ("length", 3)
    assert program.model.graph.outputs[0].shape == ("length", 3)


class Fixed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4, 3)  # this line fixes the size


class Short(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= 8:  # this line limits the size
            return x * 2
        return x.double()  # one file has one dtype


class Even(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0:  # this line wants an even size
            return x * 2
        return x.double()


ONE = (torch.ones(4, 3),)


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as stream:
        return next(number for number, line in enumerate(stream, start=1) if f"# {text}" in line)


@pytest.mark.parametrize("form", ["batch", Dim("batch"), Dim.DYNAMIC], ids=str)
def test_an_axis_that_the_model_fixes_is_an_error_with_the_line(form: Any) -> None:
    with pytest.raises(DynamicShapeError) as caught:
        export(Fixed(), ONE, dynamic_shapes=({0: form},))
    label = "dynamic" if form is Dim.DYNAMIC else "batch"
    assert f"axis 0 ({label}) of the input x was asked for as dynamic, but the model makes it 4" in str(caught.value)
    assert caught.value.source == f"{__file__}:{line_of('this line fixes the size')}"


def test_auto_lets_the_model_fix_an_axis() -> None:
    assert export(Fixed(), ONE, dynamic_shapes=({0: Dim.AUTO},)).model.graph.inputs[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("model", "condition", "line"),
    [
        (Short(), "batch <= 8", "this line limits the size"),
        (Even(), "(batch % 2) == 0", "this line wants an even size"),
    ],
    ids=["upper bound", "divisibility"],
)
def test_a_guard_that_takes_sizes_away_is_an_error_with_the_line(model: Any, condition: str, line: str) -> None:
    with pytest.raises(DynamicShapeError) as caught:
        export(model, ONE, dynamic_shapes=({0: "batch"},))
    assert f"holds only while `{condition}`" in str(caught.value)
    assert "guards='allow'" in str(caught.value)
    assert caught.value.source == f"{__file__}:{line_of(line)}"


def test_allowed_guards_are_in_the_metadata_and_the_report(tmp_path: Any) -> None:
    program = export(Short(), ONE, dynamic_shapes=({0: "batch"},), guards="allow", report=True, artifacts_dir=tmp_path)
    assert program.model.metadata_props["batch_export.guards"] == "batch <= 8"
    assert program.model.graph.inputs[0].shape == ("batch", 3)
    (report,) = tmp_path.glob("*.md")
    assert "holds only while `batch <= 8`" in report.read_text()


def test_a_declared_range_is_no_narrower_guard() -> None:
    export(Short(), ONE, dynamic_shapes=({0: Dim("batch", max=8)},))
    export(Short(), ONE, dynamic_shapes=({0: Dim.DYNAMIC(max=8)},))
    with pytest.raises(DynamicShapeError, match="batch <= 8"):
        export(Short(), ONE, dynamic_shapes=({0: Dim("batch", max=9)},))


def test_one_side_only_is_an_error() -> None:
    with pytest.raises(DynamicShapeError, match=r"axis 0 \(rows\) of the input x .* but the model makes it 4"):
        export(Plus(), PAIR, dynamic_shapes=({0: "rows"}, None))


class Pooled(torch.nn.Module):
    """Torch guards on much here that is true for every size: `(16 * n) // n == 16` and the like."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.repeat(1, 4).reshape(x.shape[0] * 4, 4)
        return y.view(x.shape[0], -1).reshape(-1, 8).sum(0)


def test_harmless_guards_are_no_errors() -> None:
    program = export(Pooled(), (torch.ones(6, 4),), dynamic_shapes=({0: "batch"},))
    torch.testing.assert_close(program(torch.ones(5, 4))[0], Pooled()(torch.ones(5, 4)))


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (({0: "b"},), r"1 entries for 2 inputs \(x, y\)"),
        ({"z": {0: "b"}}, r"names \['z'\], which are not inputs"),
        (({2: "b"}, None), r"the input x has 2 axes, not an axis 2"),
        ((["b"], None), r"gives 1 axes for the input x, which has 2"),
        (({0: 1.5}, None), r"has 1.5 for axis 0 of the input x"),
        (("batch", None), r"has 'batch' for the tensor input x"),
        (7, r"dynamic_shapes is a int"),
    ],
)
def test_a_malformed_form_is_named(form: Any, sentence: str) -> None:
    with pytest.raises(DynamicShapeError, match=sentence):
        export(Plus(), PAIR, dynamic_shapes=form)


class LeftOut(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, bias: torch.Tensor | None = None, factor: float = 2.0
    ) -> torch.Tensor:
        y = x * factor if mask is None else x * mask
        return y if bias is None else y + bias


@pytest.mark.parametrize(
    "form",
    [
        {"x": {0: "batch"}, "mask": None, "bias": {0: "batch"}},
        {"x": {0: "batch"}, "mask": {}, "bias": {0: "batch"}, "factor": None},
        ({0: "batch"}, None, {0: "batch"}, None),
    ],
    ids=str,
)
def test_an_input_left_at_its_default_may_be_named_with_none(form: Any) -> None:
    program = export(LeftOut(), (torch.ones(4, 3),), kwargs={"bias": torch.ones(4, 3)}, dynamic_shapes=form)
    x, bias = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(program(x, bias=bias)[0], LeftOut()(x, bias=bias))


def test_axes_of_an_input_left_at_its_default_are_an_error() -> None:
    with pytest.raises(DynamicShapeError, match="gives axes for mask, which the example leaves at its default"):
        export(LeftOut(), (torch.ones(4, 3),), dynamic_shapes={"x": {0: "batch"}, "mask": {0: "batch"}})


def test_an_exported_program_gets_names_for_axes_that_are_dynamic() -> None:
    program = torch.export.export(Plus(), PAIR, dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    named = export(program, dynamic_shapes=({0: "batch"}, {0: "batch"}))
    assert [value.shape for value in named.model.graph.inputs] == [("batch", 3), ("batch", 3)]
    with pytest.raises(DynamicShapeError, match="the model makes it 3"):
        export(program, dynamic_shapes=({1: "width"}, None))


@pytest.mark.parametrize("strict", [False, True])
def test_guards_of_both_kinds_of_capture(strict: bool) -> None:
    from batch_export.exporter.capture.capture import STRATEGIES

    captured = capture(
        Short(), ONE, dynamic_shapes=({0: "batch"},), guards="allow", strategies=[STRATEGIES[1 if strict else 0]]
    )
    assert [guard.condition for guard in captured.restrictions] == ["batch <= 8"]


# Property: any tree of inputs with any mixture of forms, its canonical form has one entry for each tensor and names
# every axis that was asked for, whichever way it was said.


@st.composite
def tensors_with_specs(draw: st.DrawFn) -> tuple[torch.Tensor, Any, dict[int, str]]:
    rank = draw(st.integers(1, 3))
    chosen = draw(st.dictionaries(st.integers(0, rank - 1), st.sampled_from(["a", "b", "", None]), max_size=rank))
    kinds: dict[int, Any] = {}
    names: dict[int, str] = {}
    for axis, name in chosen.items():
        if name is None:
            kinds[axis] = draw(st.sampled_from([None, Dim.STATIC, 3]))
        elif not name:
            kinds[axis], names[axis] = draw(st.sampled_from([Dim.DYNAMIC, Dim.AUTO])), ""
        else:
            kinds[axis], names[axis] = draw(st.sampled_from([name, Dim(name)])), name
    as_list = draw(st.booleans())
    spec = [kinds.get(axis) for axis in range(rank)] if as_list else kinds or None
    return torch.ones(*[3] * rank), spec, names


class Anything(torch.nn.Module):
    def forward(self, first: Any, second: Any, third: Any) -> Any:
        return first


@settings(max_examples=60, deadline=None)
@given(st.lists(tensors_with_specs(), min_size=4, max_size=4), st.booleans())
def test_canonical_forms(drawn: list[Any], by_name: bool) -> None:
    tensors, specs, names = zip(*drawn, strict=True)
    inputs = (tensors[0], {"left": tensors[1], "number": 5}, [tensors[2], (tensors[3],)])
    form: Any = (specs[0], {"left": specs[1]}, [specs[2], (specs[3],)])
    if by_name:
        form = dict(zip(("first", "second", "third"), form, strict=True))
    asked = shapes.canonical(form, Anything(), inputs, {})

    assert asked.names == list(names)
    assert set(asked.torch_form) == {"first", "second", "third"}
    assert {(axis.where, axis.axis, axis.name) for axis in asked.axes} == {
        (where, axis, name)
        for where, of_tensor in zip(
            ("['first']", "['second']['left']", "['third'][0]", "['third'][1][0]"), names, strict=True
        )
        for axis, name in of_tensor.items()
    }


def test_an_axis_that_decomposition_fixes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubles(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.randn(4, 3)
    free = torch.export.export(Doubles(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    fixed = torch.export.export(Doubles(), (x,))
    translate.decomposed(free, {})  # torch's own leaves it free
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", lambda self, decomp_table: fixed)
    with pytest.raises(DynamicShapeError, match=r"axis 0 of the input x is free .* makes it 4.*remove that axis"):
        translate.decomposed(free, {})


class OneOrMore(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:  # the decision
            return x * 2
        return x.double()


def test_a_decision_that_is_otherwise_at_one_is_refused() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `n != 1`") as caught:
        export(OneOrMore(), (torch.randn(3, 2),), dynamic_shapes=({0: "n"},))
    assert caught.value.source == f"{__file__}:{line_of('the decision')}"
    export(OneOrMore(), (torch.randn(3, 2),), dynamic_shapes=({0: Dim("n", min=2)},))


class JoinedAndMoved(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, y), dim=1) + z


@pytest.mark.parametrize("batch", [1, 2])
def test_one_word_on_axes_of_different_sizes_is_a_label(batch: int) -> None:
    inputs = (torch.randn(batch, 3), torch.randn(batch, 5), torch.randn(batch, 8))
    axes = {0: "batch", 1: "sequence"}
    with pytest.warns(ExportWarning, match="called sequence in dynamic_shapes.* called sequence_2, sequence_3"):
        program = export(JoinedAndMoved(), inputs, dynamic_shapes=(axes, axes, axes))
    sizes = [list(map(str, value.shape)) for value in program.model.graph.inputs]
    assert [size[0] for size in sizes] == ["batch"] * 3
    assert len({size[1] for size in sizes}) == 3
    other = (torch.randn(4, 2), torch.randn(4, 7), torch.randn(4, 9))
    torch.testing.assert_close(program(*other)[0], JoinedAndMoved()(*other))


class ForSomeSizes(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        if x.shape[0] >= 6 and y.shape[0] <= 16:
            return x * 2.0, y + 1
        return None


def test_sizes_at_which_the_model_gives_nothing_are_its_own_limit() -> None:
    program = export(ForSomeSizes(), (torch.randn(16), torch.randn(12)), dynamic_shapes=({0: "n"}, {0: "m"}))
    x, y = torch.randn(7), torch.randn(3)
    torch.testing.assert_close(program(x, y), [x * 2.0, y + 1])


class Apart(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, y + 1


_D = Dim("d")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (({0: _D}, {0: _D}), r"axis 0 \(d\) of the input y is 5 in the example, and 3 elsewhere"),
        (({0: 2 * _D}, None), r"axis 0 \(2\*d\) of the input x is 3 in the example, which 2\*d never is"),
        (({0: Dim("b", min=5, max=8)}, None), r"is 3 in the example, and was declared from 5 to 8"),
        (({0: 7}, None), r"axis 0 \(7\) of the input x is 3 in the example"),
        (({0: True}, None), r"dynamic_shapes has True for axis 0 of the input x"),
    ],
    ids=["one Dim, two sizes", "derived", "range", "int", "bool"],
)
def test_what_contradicts_the_example_is_one_sentence(spec: Any, said: str) -> None:
    with pytest.raises(DynamicShapeError, match=said):
        export(Apart(), (torch.randn(3, 4), torch.randn(5, 4)), dynamic_shapes=spec)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == y.shape[0] else x * 3


def test_axes_left_to_the_exporter_that_become_one_are_told_where_the_model_has_others() -> None:
    free, inputs = {0: Dim.AUTO}, (torch.randn(3, 4), torch.randn(3, 4))
    with pytest.warns(ExportWarning, match="axis 0 of the input x and axis 0 of the input y.* one axis in the file"):
        export(Branches(), inputs, dynamic_shapes=(free, free))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(Plus(), inputs, dynamic_shapes=(free, free))


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 2 * y.shape[0] + 1 else x * 3


class Behind(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[2:] + y


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
def test_axes_without_names_that_are_tied_are_told_where_the_model_has_others(hint: Any) -> None:
    free, three, seven = {0: hint}, torch.randn(3, 4), torch.randn(7, 4)
    for module, x in ((Branches(), three), (Doubled(), seven)):
        with pytest.warns(ExportWarning, match=r"axis 0 of the input .* and axis 0 of the input .*one computed from"):
            export(module, (x, three), dynamic_shapes=(free, free))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(Behind(), (seven, torch.randn(5, 4)), dynamic_shapes=(free, free))


class Gathering(torch.nn.Module):
    def forward(self, x: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return x + more["y"]


def test_keywords_that_forward_gathers_leave_no_axis_free() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(DynamicShapeError, match=r"forward takes y by \*\*more.*name these inputs"):
        export(Gathering(), (x,), kwargs={"y": x}, dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}})
    torch.testing.assert_close(export(Gathering(), (x,), kwargs={"y": x})(x, y=x)[0], x + x)


class FirstRows(torch.nn.Module):
    def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        rows: Any = count.item()
        torch._check(rows >= 2)
        torch._check(rows <= x.shape[0])
        return x[:rows].sum()


def test_the_program_that_guards_are_tried_with_asserts_as_little_as_the_file() -> None:
    program = torch.export.export(FirstRows(), (torch.ones(4), torch.tensor(3))).module(check_guards=False)
    below = (torch.ones(4), torch.tensor(1))
    with pytest.raises(RuntimeError, match=">= 2"):
        program(*below)
    assert float(without_assertions(program)(*below)) == 1.0
