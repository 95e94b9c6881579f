"""What sizes decide, though no numbers that are made up show it: both ways are in the file, or it is a warned limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import sympy
import torch
from exporting import Called, export_and_compare
from rarer import first
from torch.export import export as export_program

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture import idle_operators, second_looks
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guards import Guard

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({0: "b", 1: "t"},)


def zeros_only(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        x = torch.where(x == 0, 5.0, x)
    return x + 1


def of_one_row(x: Tensor) -> Tensor:
    if x.shape[1] > 8 and x.shape[0] == 1:
        x = x * 2
    return x + 1


def of_multiples(x: Tensor) -> Tensor:
    if x.shape[1] > 8 and x.shape[1] % 16 == 0:
        x = x * 2
    return x + 1


def behind_data(x: Tensor) -> Tensor:
    if x.sum() > 0 and x.shape[1] > 8:
        x = x * 2
    return x + 1


def fours_of_one_row(x: Tensor) -> Tensor:
    if x.shape[0] == 1 and x.shape[1] % 4 == 0:
        x = x * 2
    return x + 1


def nothing_of_one_row(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        x = torch.where(x == 0, 5.0, x)
    return x + 1


def far(x: Tensor) -> Tensor:
    return x * 2 if x.shape[1] > 160_000 else x + 1


def nested(x: Tensor) -> Tensor:
    if x.shape[0] > 4:  # noqa: SIM102
        if x.shape[1] < 3:
            x = x * 2
    return x + 1


def given(*sizes: tuple[int, int]) -> list[tuple[Tensor]]:
    made = [(one,) for size in sizes for one in (torch.randn(*size), torch.zeros(size), torch.ones(size))]
    return [*made, *((-torch.rand(size),) for size in sizes)]


def compared_together(x: Tensor) -> Tensor:
    if tuple(x.shape) == (3, 20):
        x = x * 2
    return x + 1


DECIDING = [
    compared_together,
    fours_of_one_row,
    zeros_only,
    of_one_row,
    behind_data,
    of_multiples,
    nothing_of_one_row,
    far,
    nested,
]


@pytest.mark.parametrize("function", first(3, DECIDING))
def test_both_ways_are_in_the_file(function: Callable[[Tensor], Tensor]) -> None:
    sizes = given((2, 5), (2, 10), (1, 9), (1, 4), (3, 16), (5, 2), (2, 2), (1, 32), (6, 1), (2, 160_001), (3, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_and_compare(Called(function), (-torch.rand(2, 5),), *sizes, dynamic_shapes=SHAPES)


def test_integers_that_no_example_has() -> None:
    class Padding(torch.nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            if ids.shape[1] > 8:
                ids = ids.masked_fill(ids == -100, 0)
            return ids * 2

    long = torch.full((2, 10), -100)
    example = (torch.randint(1, 5, (2, 6)),)
    export_and_compare(Padding(), example, (long,), (long[:, :7],), dynamic_shapes=({0: "b", 1: "t"},))


def asked_by_another(x: Tensor, asked: Callable[..., bool] = lambda rows, length: length > 8 and rows == 1) -> Tensor:
    return x * 2 if asked(*x.shape) else x + 1


def attention(x: Tensor) -> Tensor:
    return torch.softmax(x[:, :, None] * x[:, None, :], -1) @ x[:, :, None]


def far_attention(x: Tensor) -> Tensor:
    """What a run beyond its limit would take is known without one."""
    if x.shape[1] > 100_000:
        x = x * 2
    return attention(x)


def asked_attention(x: Tensor, asked: Callable[[int], bool] = lambda length: length > 100_000 and length % 2) -> Tensor:
    return attention(x * 2 if asked(x.shape[1]) else x)


def test_what_would_take_too_much_memory_is_a_limit() -> None:
    with pytest.warns(ExportWarning, match=r"the file holds only while `t <= 100000`"):
        export(Called(asked_attention), (torch.randn(2, 5),), dynamic_shapes=SHAPES).release()


def test_such_a_limit_is_an_error_where_guards_are() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `t <= 100000` \(at .*second_looks\.py:\d+"):
        export(Called(asked_attention), (torch.randn(2, 5),), dynamic_shapes=SHAPES, guards="error")


class Labelled(torch.nn.Module):
    """More questions than model and program are run at sizes, of which none decides anything."""

    def forward(self, x: Tensor) -> Tensor:
        labels = []
        for k in range(5, 17):
            labels.append("many" if x.shape[1] // k > 1 else "few")
            labels.append("wide" if x.shape[2] % k == 1 else "narrow")
        return x * len(labels)


def test_each_of_many_questions_is_tried() -> None:
    export(Labelled(), (torch.randn(2, 20, 40),), dynamic_shapes={"x": {1: "n", 2: "m"}}, guards="error").release()


def test_or_both_ways_are_in_the_file() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(Called(far_attention), (torch.randn(2, 5),), dynamic_shapes=SHAPES)
    assert [node.op_type for node in program.model.graph].count("If") == 1


def test_what_no_capture_has_both_ways_is_refused_where_it_differs() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `t <= 8` \(at .*test_exporter_second_looks\.py:\d+"):
        export(Called(asked_by_another), (torch.randn(2, 5),), dynamic_shapes=SHAPES)


def test_what_is_the_same_on_both_sides_is_no_decision() -> None:
    def alike(x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] > 8 else x * 2  # noqa: RUF034

    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(Called(alike), (torch.randn(2, 5),), dynamic_shapes=SHAPES)
    assert [node.op_type for node in program.model.graph] == ["Mul"]


def by_count(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(x.shape[0], 4)
    return x.mean(1)


def by_shortest(x: Tensor) -> Tensor:
    return x.mean(1) if min(x.shape[0], x.shape[1]) > 0 else x.new_zeros(x.shape[0], 4)


@pytest.mark.parametrize("function", [by_count, by_shortest])
def test_each_axis_may_be_empty_by_itself(function: Callable[[Tensor], Tensor]) -> None:
    """With all of them empty there is nothing that could differ."""
    others = [(torch.randn(*sizes, 4),) for sizes in ((2, 0), (0, 5), (1, 1), (3, 7))]
    export_and_compare(Called(function), (torch.randn(2, 5, 4),), *others, dynamic_shapes=SHAPES)


def one_picture(x: Tensor) -> Tensor:
    return x.clamp(max=800.0) if x.shape[0] == 2 and x.shape[1] == 4 else x


def one_shape(x: Tensor) -> Tensor:
    return x.clamp(max=800.0) if x.shape == (2, 4) else x


@pytest.mark.parametrize("function", first(1, [one_picture, one_shape]))
@pytest.mark.parametrize("shape", first(2, [(2, 5), (3, 3), (2, 4), (3, 5)]))
def test_a_question_behind_one_about_one_size_counts(
    function: Callable[[Tensor], Tensor], shape: tuple[int, int]
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            program = export(Called(function), (torch.randn(shape),), dynamic_shapes=SHAPES)
        except DynamicShapeError:
            return
    limits = [one for one in said if issubclass(one.category, ExportWarning)]
    for size in [(2, 5), (3, 4), (3, 3), *([] if limits else [(2, 4)])]:
        x = torch.randn(size) * 1000
        torch.testing.assert_close(program(x)[0], function(x))


def window(x: Tensor) -> Tensor:
    if x.shape[1] >= 5 and x.shape[1] < 6:
        x = torch.where(x > 300, x * 2, x)
    return x * 2


def wider_window(x: Tensor) -> Tensor:
    if x.shape[1] >= 5:  # noqa: SIM102
        if x.shape[1] < 8:
            x = x.clamp(max=300.0)
    return x + 1


@pytest.mark.parametrize("function", first(1, [window, wider_window]))
@pytest.mark.parametrize("width", first(2, [7, 12, 5, 4]))
def test_sizes_between_two_that_were_looked_at_count(function: Callable[[Tensor], Tensor], width: int) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        program = export(Called(function), (torch.randn(2, width),), dynamic_shapes=SHAPES)
    if not [one for one in said if issubclass(one.category, ExportWarning)]:
        for size in (1, 2, 4, 5, 6, 7, 8, 12):
            x = torch.randn(2, size) * 1000
            torch.testing.assert_close(program(x)[0], function(x))


def filled_up(x: Tensor) -> Tensor:
    """Joined with zeros where the length is no multiple: elsewhere the same operators, joined with nothing."""
    rest = (8 - x.shape[1] % 8) % 8
    if rest:
        x = torch.cat([x, x.new_zeros(x.shape[0], rest)], dim=1)
    return x.view(x.shape[0], -1, 8).mean(2)


def filled_up_and_marked(x: Tensor) -> Tensor:
    rest = (8 - x.shape[1] % 8) % 8
    if rest:
        x = torch.cat([x, x.new_zeros(x.shape[0], rest)], dim=1).neg()
    return x.view(x.shape[0], -1, 8).mean(2)


@pytest.mark.parametrize("width", first(1, [5, 8, 13]))
def test_what_is_joined_with_nothing_is_no_limit(width: int) -> None:
    sizes = [(2, width), (3, 8), (1, 1), (2, 16), (2, 17), (4, 24), (1, 31)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(Called(filled_up), (torch.randn(2, width),), dynamic_shapes=SHAPES)
    for size in sizes:
        x = torch.randn(*size)
        torch.testing.assert_close(program(x)[0], filled_up(x))


def test_an_operator_beside_it_counts() -> None:
    x = torch.zeros(2, 5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ExportWarning)
            program = export(Called(filled_up_and_marked), (x,), dynamic_shapes=SHAPES)
    except (DynamicShapeError, ExportWarning):
        return
    for width in (5, 8, 13, 16):
        given = torch.randn(2, width)
        torch.testing.assert_close(program(given)[0], filled_up_and_marked(given))


class Chunks(torch.nn.Module):
    """Of eight each, the last one filled up, which add what those before them come to."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, length, width = x.shape
        rest = (8 - length % 8) % 8
        x = x * mask[:, -length:, None].to(x.dtype)
        chunks = torch.nn.functional.pad(x, (0, 0, 0, rest)).reshape(rows, -1, 8, width)
        sums = torch.cat([torch.zeros_like(chunks[:, :1, 0]), chunks.sum(2)], dim=1)
        decay = torch.nn.functional.pad(chunks.mean((2, 3)), (1, 0))
        count = decay.shape[1]
        parts = decay[..., None].expand(rows, count, count).tril(-1).cumsum(1).exp()
        before = (parts[..., None] * sums[:, None]).sum(2)[:, :-1]
        y = (chunks + before[:, :, None]).reshape(rows, -1, width)
        return y[:, :length] if rest > 0 else y


CHUNKS = ({0: "b", 1: "n"}, {0: "b", 1: "n"})


def chunks(rows: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, length, 3), torch.randint(0, 2, (rows, length))


def test_what_is_cut_off_a_whole_number_of_chunks_is_no_limit() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*holds only while `(?!n != 0`)", ExportWarning)
        program = export(Chunks(), chunks(2, 5), dynamic_shapes=CHUNKS)
    for size in ((1, 1), (2, 8), (3, 16), (2, 17), (1, 24), (4, 7)):
        given = chunks(*size)
        torch.testing.assert_close(program(*given)[0], Chunks()(*given))


def test_a_size_that_was_found_to_be_an_axis_is_known_from_the_example() -> None:
    other_names = (CHUNKS[0], {0: "c", 1: "m"})
    captured = capture(Chunks(), chunks(2, 5), {}, dynamic_shapes=other_names, guards="allow")
    (end,) = (
        node
        for node in captured.traced.graph.nodes
        if node.target is torch.ops.aten.slice.Tensor and str(node.args[0]) == "mask"
    )
    assert not end.meta["val"].shape[1].node.has_hint()
    assert idle_operators.is_idle(end, idle_operators.hinted)


def test_an_equality_beyond_a_guard_may_be_one_of_a_single_axis() -> None:
    rows, length = sympy.symbols("s0 s2", integer=True, positive=True)
    axes = second_looks._Sizes({"s0": "b", "s1": "n", "s2": "n"}, {"b": 2, "n": 9})
    assert axes.at({"n": 16}) == {"s0": 2, "s1": 16, "s2": 16}
    program = export_program(torch.nn.Identity(), (torch.ones(2),))
    points = [{"n": 8 * k} for k in range(1, 9)]
    looking = second_looks._Beyond(program, axes, {}, points, counts=False, is_alone=False)
    kinds = {
        sympy.Eq(2 * rows * (length // 8), rows * (1 + length // 8)): True,  # one chunk
        sympy.Eq(sympy.Mod(rows * length * 8, rows * length), 0): True,
        sympy.Eq(length // 8, 1): True,
        sympy.Eq(rows * length, 16): False,
        sympy.Ne(rows, 3): False,
    }
    captured = Captured(program, guards=[Guard(str(one), expression=one) for one in kinds])
    looking.look_at(captured)
    assert [one.condition for one in looking.searched] == [str(one) for one, searched in kinds.items() if searched]
    assert [one.condition for one in captured.guards] == [str(one) for one, searched in kinds.items() if not searched]
