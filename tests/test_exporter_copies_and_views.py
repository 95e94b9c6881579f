"""What is the tensor itself and what is a copy of it, as in eager: a write to one shows in the other, or does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import Mod

from batch_export.errors import NoFormError, TranslationError
from batch_export.exporter import export
from batch_export.exporter.translate.shared_at_sizes import _is_in_order_at
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

LAST = torch.channels_last


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _written(
    copy: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 1
        h = copy(y)
        h.relu_()
        return y, h + y

    return forward


def _source_written(copy: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], tuple[torch.Tensor]]:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor]:
        y = x * 1
        h = copy(y[:, 1:])
        y.mul_(2)
        return (h + y[:, 1:],)

    return forward


COPIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda y: y.contiguous(),
    "in another order": lambda y: y.contiguous(memory_format=LAST),
    "to another order": lambda y: y.to(memory_format=LAST),
    "to, as a copy": lambda y: y.to(torch.float32, copy=True),
    "to": lambda y: y.to(torch.float32),
    "of a transposed one": lambda y: y.transpose(1, 2).contiguous().transpose(1, 2),
    "dropout in eval mode": lambda y: functional.dropout(y, 0.5, training=False),
    "dropout of nothing": lambda y: functional.dropout(y, 0.0, training=True),
    "dropout of channels": lambda y: functional.dropout2d(y, 0.5, training=False),
    "alpha dropout": lambda y: functional.alpha_dropout(y, 0.5, training=False),
    "reshape": lambda y: y.reshape(y.shape),
    "flatten": lambda y: y.flatten(2).unflatten(2, (4, 4)),
}


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("way", [_written, _source_written])
@pytest.mark.parametrize("copy", COPIES)
def test_a_write_shows_where_eager_shows_it(copy: str, way: Callable[..., Callable[..., object]], free: bool) -> None:
    module = Calls(way(COPIES[copy]))
    shapes = ({0: torch.export.Dim("n", min=2)},) if free else None
    program = export(module, (torch.randn(2, 3, 4, 4),), dynamic_shapes=None if shapes is None else (shapes,))
    for size in (2, 5) if free else (2,):
        x = torch.randn(size, 3, 4, 4)
        torch.testing.assert_close(list(program(x)), list(module(x)))


def test_a_dropout_is_the_tensor_itself_where_torch_makes_the_program_functional() -> None:
    def forward(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x * 1
        h = functional.dropout(y, 0.5, training=False)
        torch.sin(h, out=h)
        h.index_add_(0, index, x[:1])
        return y + h

    module, x = Calls(forward), torch.randn(3, 4)
    program = export(module, (x, torch.tensor([1])))
    torch.testing.assert_close(program(x, torch.tensor([1]))[0], module(x, torch.tensor([1])))


SHARED_AT_ONE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda y: y.t().contiguous(),
    "of a column": lambda y: y[:, 0].contiguous(),
    "reshape": lambda y: y.t().reshape(-1),
    "flatten": lambda y: y.t().flatten(),
}


@pytest.mark.parametrize("copy", SHARED_AT_ONE)
def test_a_copy_that_is_a_view_of_one_row_is_refused_where_it_matters(copy: str) -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 1
        h = SHARED_AT_ONE[copy](y)
        y.relu_()
        return y, h

    x = torch.randn(4, 6)
    with pytest.raises(TranslationError, match=r"size of 1.*test_exporter_copies_and_views.*clone\(\)"):
        export(Calls(forward), (x,), dynamic_shapes=(({0: "n"},),))
    for shapes in (None, ({0: torch.export.Dim("n", min=2)},)):
        program = export(Calls(forward), (x,), dynamic_shapes=None if shapes is None else (shapes,))
        torch.testing.assert_close(list(program(x)), list(forward(x)))


OF_EXPANDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reshape": lambda y: y[:, None].expand(-1, 2, -1).reshape(2 * y.shape[0], 4),
    "flatten": lambda y: y[:, None].expand(-1, 2, -1).flatten(0, 1),
    "of a row": lambda y: y.sum(0, keepdim=True).expand(y.shape[0], -1).reshape(-1, 2),
    "of a column": lambda y: torch.arange(y.shape[0])[None].expand(3, -1).reshape(-1),
}


@pytest.mark.parametrize("copy", OF_EXPANDED)
def test_a_part_of_an_expanded_tensor_that_is_one_with_others_at_some_size_is_refused(copy: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        h = OF_EXPANDED[copy](x * 1)
        h[0] = 5
        return h

    def whole(x: torch.Tensor) -> torch.Tensor:
        return OF_EXPANDED[copy](x * 1).mul_(2)

    x = torch.randn(3, 4)
    if copy != "of a row":  # two rows of which are one at no size alone
        with pytest.raises(TranslationError, match=r"size of 1; several of its elements.*copies_and_views.*clone\(\)"):
            export(Calls(forward), (x,), dynamic_shapes=(({0: "n"},),))
    export_and_compare(Calls(whole), (x,), (torch.randn(5, 4),), dynamic_shapes=(({0: "n"},),))
    free = (({0: torch.export.Dim("n", min=2)},),)
    export_and_compare(Calls(forward), (x,), (torch.randn(5, 4),), dynamic_shapes=free)


def test_a_copy_that_is_a_view_of_one_row_is_taken_where_nothing_reads_the_other() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        h = (x * 1).t().contiguous()
        h.relu_()
        return h

    program = export(Calls(forward), (torch.randn(4, 6),), dynamic_shapes=(({0: "n"},),))
    for size in (1, 3):
        x = torch.randn(size, 6)
        torch.testing.assert_close(program(x)[0], forward(x))


COPY_WRITTEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transpose": lambda x: x.t().contiguous(),
    "flat transpose": lambda x: x.t().reshape(-1),
    "first columns": lambda x: x[:, :5].contiguous(),
    "other columns": lambda x: x[:, 1:].reshape(-1),
    "a column": lambda x: x[:1, :, None].expand(-1, -1, x.shape[0]).contiguous(),
    "every other of a column": lambda x: x.view(-1, 3, 2)[:, :2, 0].reshape(-1),
    "twice": lambda x: x.t().contiguous().t().contiguous(),
}


@pytest.mark.parametrize("copy", COPY_WRITTEN)
@pytest.mark.parametrize("own", [False, True])
def test_a_write_to_a_copy_that_is_none_at_one_is_refused_where_the_other_is_read(copy: str, own: bool) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x * 1 if own else x
        y = COPY_WRITTEN[copy](x)
        y += 1
        return x * 2

    with pytest.raises(TranslationError, match=r"n has a size of 1.*test_exporter_copies_and_views.*clone\(\)"):
        export(Calls(forward), (torch.randn(4, 6),), dynamic_shapes=(({0: "n"},),))
    for shapes in (None, ({0: torch.export.Dim("n", min=2)},)):
        program = export(Calls(forward), (torch.randn(4, 6),), dynamic_shapes=None if shapes is None else (shapes,))
        x = torch.randn(4, 6)
        torch.testing.assert_close(program(x.clone())[0], forward(x))


def test_a_copy_of_the_first_columns_is_refused_where_these_may_be_all() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x[:, :5].contiguous()
        y += 1
        return x * 2

    least = torch.export.Dim("n", min=2)
    with pytest.raises(TranslationError, match=r"t has a size of 5.*min=6"):
        export(Calls(forward), (torch.randn(4, 7),), dynamic_shapes=(({0: least, 1: torch.export.Dim("t", min=3)},),))
    free = ({0: least, 1: torch.export.Dim("t", min=6)},)
    program = export(Calls(forward), (torch.randn(4, 7),), dynamic_shapes=(free,))
    x = torch.randn(3, 6)
    torch.testing.assert_close(program(x.clone())[0], forward(x))


def test_a_write_to_a_copy_is_taken_where_the_other_gives_sizes_only() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        h = x * 1
        y = h.t().contiguous()
        y += 1
        return y * h.shape[0] + torch.zeros(h.numel()).sum()

    program = export(Calls(forward), (torch.randn(4, 6),), dynamic_shapes=(({0: "n"},),))
    for size in (1, 3):
        x = torch.randn(size, 6)
        torch.testing.assert_close(program(x)[0], forward(x))


def test_a_write_to_a_copy_of_part_of_a_buffer_is_refused_as_the_next_call_reads_it() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(9, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows: torch.Tensor = self.get_buffer("table")[: x.shape[0]].contiguous()[:, 1:].reshape(-1)
            rows += 1
            return x.sum() + rows.sum()

    with pytest.raises(TranslationError, match="n has a size of 1"):
        export(Module(), (torch.randn(5),), dynamic_shapes=(({0: "n"},),)[0])


FLAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ravel": torch.ravel,
    "reshape": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(torch.zeros(12)),
    "flatten": lambda x: x.flatten(),
}


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("kind", ["dense", "every other", "transposed"])
def test_a_write_to_a_flat_form_reaches_the_input_as_in_eager(name: str, kind: str) -> None:
    def made() -> torch.Tensor:
        x = torch.arange(12.0)
        if kind == "dense":
            return x.reshape(3, 4)
        return x.repeat_interleave(2).reshape(3, 8)[:, ::2] if kind == "every other" else x.reshape(4, 3).T

    def forward(x: torch.Tensor) -> torch.Tensor:
        flat = FLAT[name](x)
        flat[-1] = -2
        return flat

    given, expected = made(), forward(eager := made())
    outputs = export(Calls(forward), (made(),))(given)
    assert torch.equal(outputs[0], expected)
    changed = outputs.mutated.values()
    assert [torch.equal(one, eager) for one in changed] == [True] * (not torch.equal(eager, made()))


class Blocks(torch.nn.Module):
    """Blocks of a sequence, whose widths are what remains: of a sequence shorter than a block there are none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[0] * (x.shape[1] // 4)
        blocks = x.reshape(count, 4, 4, -1).transpose(1, 2)
        return blocks.permute(2, 0, 1, 3).reshape(4, -1, 2) * 2


def test_a_copy_whose_sizes_divide_by_a_number_that_may_be_none() -> None:
    others = [(torch.randn(*sizes),) for sizes in ((1, 8, 8), (3, 4, 8), (1, 4, 8), (5, 16, 8))]
    export_and_compare(Blocks(), (torch.randn(2, 8, 8),), *others, dynamic_shapes=({0: "batch", 1: "size"},))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "detach": lambda y: y.detach(),
    "view": lambda y: y.view(-1, 1, 3),
    "rows": lambda y: y[1:3],
    "a column": lambda y: y[:, 0],
    "transposed": lambda y: y.t(),
}
AXES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "transpose_": lambda v: v.transpose_(0, -1),
    "squeeze_": lambda v: v.squeeze_(),
    "both": lambda v: v.unsqueeze_(1).swapaxes_(0, 1),
}


def _changed_axes(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for view in VIEWS.values():
            y = x * 1
            before, v = y[0], view(y)
            change(v)
            v.mul_(2)
            y.add_(1)
            found += [v, y, before]
        return found

    return forward


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("change", AXES)
def test_a_view_whose_axes_change_in_place_leaves_those_of_the_others(change: str, free: bool) -> None:
    shapes = {"inputs": ({0: torch.export.Dim("rows", min=3)},)} if free else None
    more = [(torch.randn(7, 3),)] if free else []
    export_and_compare(Calls(_changed_axes(AXES[change])), (torch.randn(4, 3),), *more, dynamic_shapes=shapes)


def _resized(x: torch.Tensor, *, is_read: bool) -> tuple[torch.Tensor, ...]:
    y = x * 1
    v = y.view(-1)
    v.resize_(6)
    return (v, y) if is_read else (v,)


def test_a_size_that_changes_in_place_is_refused_where_another_has_the_memory() -> None:
    export_and_compare(Calls(lambda x: _resized(x, is_read=False)), (torch.randn(4, 3),))
    with pytest.raises(TranslationError, match=r"another size while mul has its memory.*`\.clone\(\)`"):
        export(Calls(lambda x: _resized(x, is_read=True)), (torch.randn(4, 3),))


class Decoding(torch.nn.Module):
    """Labels of a recurrent layer's steps, and which of them stay: a mask that is written in place, a part first."""

    def __init__(self, layer: type[torch.nn.RNNBase]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer(2, 6, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, _ = self.layer(functional.max_pool1d(x, 2, 2, 1).permute(2, 0, 1))
        labels = steps.view(steps.shape[0] * steps.shape[1], -1).view(*steps.shape[:2], -1).argmax(2)
        kept = torch.ones_like(labels, dtype=torch.bool)
        kept[1:] = labels[1:] != labels[:-1]
        kept &= labels != 0
        return kept


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_writes_behind_a_recurrent_layer_of_any_length(layer: type[torch.nn.RNNBase]) -> None:
    more = [(torch.randn(batch, 2, width),) for batch, width in ((1, 9), (3, 16))]
    export_and_compare(Decoding(layer), (torch.randn(2, 2, 20),), *more, dynamic_shapes=({0: "b", 2: "w"},))


def _bits_cleared(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return y


def _part_of_the_bits(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 1
    bits = y[1:].view(torch.int32)
    bits[0, 1:3] = 7
    y[:, 0] = 1.5
    return y, bits


def _bits_of_some_strides(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.as_strided((2, 3), (4, 1)).view(torch.int32).add_(1)
    return y


@pytest.mark.parametrize("axes", [None, (({0: "rows"},),)], ids=["fixed", "free"])
@pytest.mark.parametrize("function", [_bits_cleared, _part_of_the_bits, _bits_of_some_strides])
def test_a_write_through_a_view_of_another_dtype_shows_in_the_tensor(function: Callable[..., Any], axes: Any) -> None:
    inputs = (torch.tensor([[-1.0, 2.0, -0.0, 3.0]] * 3),)
    more = () if axes is None else ((torch.linspace(-2.0, 2.0, 20).reshape(5, 4),),)
    export_and_compare(Calls(function), inputs, *more, dynamic_shapes=axes, opset_version=26)
    with pytest.raises(NoFormError, match=r"BitCast has no form at opset 20.*choose opset 26"):
        export(Calls(function), inputs, dynamic_shapes=axes, opset_version=20)


def _integers_read_as_others(x: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
    flags = x > 0
    y = u + 0
    y.view(torch.int8).neg_()
    wide = x.view(torch.uint32)
    return flags.view(torch.uint8).sum(0), flags.view(torch.int8) - 2, y, wide.to(torch.int64), wide.view(torch.int32)


@pytest.mark.parametrize("opset_version", [13, 26])
def test_a_view_of_integers_or_truth_values_as_integers_runs_at_every_opset(opset_version: int) -> None:
    inputs = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31)], dtype=torch.int32), torch.tensor([0, 1, 127, 128, 255])
    export_and_compare(
        Calls(_integers_read_as_others), (inputs[0], inputs[1].to(torch.uint8)), opset_version=opset_version
    )


def test_a_view_as_truth_values_is_refused() -> None:
    with pytest.raises(TranslationError, match=r"a view of UINT8 as BOOL has no form in ONNX.*compare with 0"):
        export(Calls(lambda u: u.view(torch.bool)), (torch.tensor([0, 1], dtype=torch.uint8),), opset_version=26)


def test_a_view_of_bfloat16_as_integers_has_its_bits() -> None:
    export_and_compare(
        Calls(lambda x: x.to(torch.bfloat16).view(torch.int16)), (torch.tensor([1.5, -0.0, 3e38]),), opset_version=26
    )


_EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("opset", [20, 26])
@pytest.mark.parametrize("dtype", _EIGHT_BITS, ids=str)
def test_bytes_are_read_as_float8(dtype: torch.dtype, opset: int) -> None:
    model = Calls(lambda x: x.view(dtype).to(torch.float32))
    export_and_compare(model, (torch.arange(256, dtype=torch.uint8),), opset_version=opset)
    export_and_compare(model, (torch.arange(-128, 128, dtype=torch.int8),), opset_version=opset)


@pytest.mark.parametrize("opset", [20, 26])
@pytest.mark.parametrize("wanted", [torch.uint8, torch.float8_e5m2], ids=str)
def test_float8_read_as_another_dtype_is_refused(wanted: torch.dtype, opset: int) -> None:
    model = Calls(lambda x: x.to(torch.float8_e4m3fn).view(wanted))
    with pytest.raises(TranslationError, match=r"BitCast has no kernel for float8.*x\.to\(torch\.float32\)"):
        export(model, (torch.randn(4),), opset_version=opset)


def test_what_is_shuffled_is_a_copy_also_of_a_buffer_that_is_a_view() -> None:
    class Shuffled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.arange(6.0).reshape(1, 1, 3, 2)
            self.register_buffer("whole", memory)
            self.register_buffer("part", memory.view(2, 3, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shuffled = torch.channel_shuffle(self.part, 3)
            shuffled.unbind(0)[0].add_(5)
            return self.part * x + shuffled

    export_and_compare(Shuffled(), (torch.ones(1),))


def test_a_size_at_which_there_is_no_such_tensor_is_no_reason() -> None:
    """torch's remainders hold that what they are of is not below 0, as segments of a length that is too short are."""
    length = sympy.Symbol("length", integer=True)
    sizes = [2, Mod(length - 8, 4)]
    assert not _is_in_order_at(sizes, [length, 1], {length: 1})


def _of_its_own_kind(part: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 1
        piece = part(y)
        same = piece.type_as(piece)
        piece.fill_(4.0)
        same[:1].mul_(2.0)
        return y, same, piece.type_as(piece.long())

    return forward


def _lifted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1
    torch.ops.aten.lift_fresh(y)[:, 1:].fill_(4.0)
    return y, torch.tensor([1.0, 2.0]) + y.sum()


def _as_large_as_itself(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, z = x * 1, x * 2
    y.expand_as(y)[:, 1:].fill_(4.0)
    z.reshape_as(z).relu_()
    return y, z


@pytest.mark.parametrize("axes", [None, {0: "n"}, {1: "m"}, {0: "n", 1: "m"}], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        _of_its_own_kind(lambda y: y.hsplit([1])[1]),
        _of_its_own_kind(lambda y: y.vsplit([1])[1]),
        _of_its_own_kind(lambda y: y.hsplit(2)[0]),
        _as_large_as_itself,
        _lifted,
    ],
    ids=["columns", "rows", "halves", "as itself", "lifted"],
)
def test_a_write_reaches_what_gives_the_tensor_back(function: Callable[..., Any], axes: dict[int, str] | None) -> None:
    sizes = 4 + 2 * (0 in (axes or {})), 4 + 4 * (1 in (axes or {}))
    shapes = None if axes is None else ((axes,),)
    export_and_compare(Calls(function), (torch.randn(4, 4),), (torch.randn(sizes),), dynamic_shapes=shapes)
