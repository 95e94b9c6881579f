"""TorchScript's programs: loops, lists, decisions by sizes, sizes that a trace holds as tensors, saved modules."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from batch_export import export
from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture.strategies import NON_STRICT
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(3, 4)

    def forward(self, x: Tensor, h: Tensor) -> tuple[list[Tensor], Tensor]:
        seen: list[Tensor] = []
        for step in range(x.size(1)):
            h = self.cell(x[:, step], h)
            if step % 2 == 0:
                continue
            seen.append(h)
            if len(seen) > 1:
                break
        return seen, torch.cat(seen[::-1], dim=1)


class Sizes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = torch.nn.Parameter(torch.randn(1, 16, 3))
        self.names = ["a", "b"]
        self.width = 2

    def spread(self, count: int) -> float:
        return math.sqrt(float(count)) * math.ceil(count / 3) + min(count, 5) ** 2

    def forward(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        length = x.shape[1]
        x = x + self.places[:, :length].to(x.dtype)
        if mask is not None:
            x = x.masked_fill(mask[:, :, None], -1.0)
        numbers = torch.tensor([0.5, float(length)], dtype=torch.float32, device=x.device)
        found: dict[str, Tensor] = {}
        for place, name in enumerate(self.names):
            found[name] = x * (place + 1) + self.spread(length)
        found["more"] = x.new_zeros([x.size(0), self.width]) + numbers[1] + numbers[0]
        found["last"] = torch.arange(length, dtype=torch.int64)[-1:] // 2
        found["largest"] = x.max(dim=1)[0] if x.dtype == torch.float32 else x.min(dim=1)[0]
        return found


class Traced(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = x.shape[0], x.shape[1]
        y = x.reshape(rows, columns // 2, 2).transpose(1, 2).reshape(rows, -1)
        return y[:, : columns // 2] + x.mean(1, keepdim=True), torch.zeros(rows, int(columns * 0.5)), torch.arange(rows)


class Attending(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.attention(x, x, x, key_padding_mask=padding)[0]


class Doubled(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        image = torch.nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="nearest")
        return image[0, 0]


def _pictures() -> torch.nn.Module:
    layers = [torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout()).eval()


def _saved(module: torch.nn.Module) -> Any:
    content = io.BytesIO()
    torch.jit.save(torch.jit.script(module), content)
    content.seek(0)
    return torch.jit.load(content)


_PICTURE = (torch.randn(2, 3, 8, 8),)
_PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
_CASES: dict[str, tuple[Callable[[], Any], torch.nn.Module, tuple[Any, ...], Any, list[tuple[Any, ...]]]] = {
    "steps": (
        *(lambda: torch.jit.script(Steps()), Steps(), (torch.randn(2, 5, 3), torch.randn(2, 4))),
        *(({0: "batch"}, {0: "batch"}), [(torch.randn(6, 5, 3), torch.randn(6, 4))]),
    ),
    "sizes": (
        *(lambda: torch.jit.script(Sizes()), Sizes(), (torch.randn(2, 6, 3),)),
        *(({0: "batch", 1: "length"},), [(torch.randn(3, 9, 3),)]),
    ),
    "given": (
        *(lambda: torch.jit.script(Sizes()), Sizes(), (torch.randn(2, 6, 3), torch.rand(2, 6) > 0.5)),
        *(({0: "batch"}, {0: "batch"}), [(torch.randn(3, 6, 3), torch.rand(3, 6) > 0.5)]),
    ),
    "traced": (
        *(lambda: torch.jit.trace(Traced(), torch.randn(4, 6)), Traced(), (torch.randn(4, 6),)),
        *(({0: "rows", 1: "columns"},), [(torch.randn(7, 10),)]),
    ),
    "attending": (
        *(lambda: torch.jit.script(Attending().eval()), Attending().eval(), (torch.randn(2, 5, 8), _PADDING)),
        *(({0: "batch"}, {0: "batch"}), [(torch.randn(4, 5, 8), torch.cat([_PADDING, _PADDING]))]),
    ),
    "doubled": (
        *(lambda: torch.jit.script(Doubled()), Doubled(), (torch.randn(5, 3),)),
        *(({0: "rows"},), [(torch.randn(2, 3),), (torch.randn(33, 3),)]),
    ),
    "a traced picture": (
        *(lambda: torch.jit.trace(_pictures(), _PICTURE), _pictures(), _PICTURE),
        *(({0: "batch", 2: "height"},), [(torch.randn(3, 3, 12, 8),)]),
    ),
    "a saved picture": (
        *(lambda: _saved(_pictures()), _pictures(), _PICTURE),
        *(({0: "batch", 2: "height"},), [(torch.randn(3, 3, 12, 8),)]),
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_what_a_script_says_goes_through(name: str) -> None:
    torch.manual_seed(3)
    make, module, args, axes, more = _CASES[name]
    scripted = make()
    module.load_state_dict(scripted.state_dict())
    program = export(scripted, args, dynamic_shapes=axes)
    for given in (args, *more):  # the script's own attention gives zeros for padding, and a trace's numbers are its own
        expected = torch.utils._pytree.tree_leaves((scripted if name == "traced" else module)(*given))
        for one, other in zip(program(*given), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(one), other, atol=1e-4, rtol=1e-4)


class Deciding(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 2:
            return x + 1
        return x - 1


def test_a_decision_by_a_free_size_is_told_with_its_line() -> None:
    line = Deciding.forward.__code__.co_firstlineno + 1
    with pytest.raises(DynamicShapeError, match=rf"rows > 2` \(at .*test_exporter_script_graphs.py:{line}\)"):
        export(torch.jit.script(Deciding()), (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},))
    export_and_compare(torch.jit.script(Deciding()), (torch.randn(5, 3),))


class DecidingByData(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if bool(x.sum() > 0):
            y = y.sin()
            if x.max() > 1:
                y = y + x
        elif x.min() < -2:
            return x
        return y


@pytest.mark.parametrize("shapes", [None, ({0: "rows"},)])
def test_decisions_by_data_go_both_ways(shapes: Any) -> None:
    scripted, x = torch.jit.script(DecidingByData()), torch.linspace(-1, 0.9, 15).reshape(5, 3)
    others = ((x + 1,), (x + 0.1,), (x - 3,), (x * float("nan"),))
    export_and_compare(scripted, (x,), *others, dynamic_shapes=shapes)


class Failing(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 3, "three axes"
        return x


def test_an_error_of_the_script_is_told_with_its_line() -> None:
    line = Failing.forward.__code__.co_firstlineno + 1
    with pytest.raises(CaptureError, match=rf"three axes \(at .*test_exporter_script_graphs.py:{line}\)"):
        export(torch.jit.script(Failing()), (torch.randn(5, 3),))


@torch.jit.script
class Pair:
    def __init__(self, one: Tensor, other: Tensor) -> None:
        self.one = one
        self.other = other


class Paired(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pair = Pair(x, x + 1)
        return pair.one * pair.other


def test_an_operator_without_a_form_is_named_with_its_line() -> None:
    line = Paired.forward.__code__.co_firstlineno + 1
    said = rf"prim::CreateObject of TorchScript has no form here \(at .*:{line}\).*export the original module"
    with pytest.raises(CaptureError, match=said):
        export(torch.jit.script(Paired()), (torch.randn(5, 2),))


def test_nodes_have_the_lines_of_the_source() -> None:
    line = Deciding.forward.__code__.co_firstlineno + 2
    program = export(torch.jit.script(Deciding()), (torch.randn(5, 3),))
    traces = [node.metadata_props["pkg.torch.onnx.stack_trace"] for node in program.model.graph]
    assert all(f'test_exporter_script_graphs.py", line {line}' in one for one in traces)


class Copying(torch.nn.Module):
    def forward(self, x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        y = x.to(like, copy=True)
        z = x.to(x.dtype, copy=True)
        y.add_(1)
        z.mul_(2)
        return x + y, z.to(x.device)


def test_a_copy_that_is_asked_for_is_one() -> None:
    x = torch.randn(3, 4)
    program = export(torch.jit.script(Copying()), (x, x * 1))
    outputs = program(x, x * 1)
    assert not outputs.mutated
    for one, other in zip(outputs, Copying()(x, x * 1), strict=True):
        torch.testing.assert_close(one, other)


class Weighed(torch.nn.Module):
    def forward(self, x: Tensor, shifts: list[int]) -> Tensor:
        for shift in shifts:
            x = x.roll(shift, 1) * shift if shift > 1 else x - shift
        return x


class AroundScript(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.script = torch.jit.script(Weighed())

    def forward(self, x: Tensor) -> Tensor:
        return self.script(x, [1, 2]) + 1


class BesideScript(AroundScript):
    """A function with a gradient of its own, which torch.jit.trace does not look into."""

    def forward(self, x: Tensor) -> Tensor:
        return Stepped.apply(x) + self.script(x, [1, 2])  # type: ignore[no-any-return,no-untyped-call]


def test_a_script_is_a_module_of_an_ordinary_one() -> None:
    x = torch.randn(2, 6)
    export_and_compare(AroundScript(), (x,), (x[:1],), dynamic_shapes=({0: "batch"},))


def test_a_script_is_called_while_torch_traces() -> None:
    x, module = torch.randn(2, 6), BesideScript()
    method = module.script.forward
    program = export_and_compare(module, (x,), (-x,))
    assert [attempt.strategy for attempt in program.captured.attempts] == [NON_STRICT]
    assert module.script.forward is method


class OfPython(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Stepped.apply(x)  # type: ignore[no-untyped-call,no-any-return]


class Stepped(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return (x > 0) * x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient


def test_a_function_of_python_within_a_script_is_refused() -> None:
    traced = torch.jit.trace(OfPython(), (torch.randn(3),))
    with pytest.raises(CaptureError, match="the Python function Stepped within TorchScript"):
        export(traced, (torch.randn(3),))


class Whole(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        number = int(x[1].item())
        return torch.tensor([x.shape[0], number]), x * int(x[0]) + number


class Set(torch.nn.Module):
    """Parameters that are set to tensors, also of other shapes, as a script may do it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.weight * 2
        self.weight = x
        for _ in range(3):
            self.weight = self.weight * 2 + x
        return before, self.weight


class Shortened(torch.nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        rows = x.unbind()
        del rows[1]
        return rows


def test_whole_numbers_of_the_data() -> None:
    others = [(torch.tensor(numbers),) for numbers in ([-2.7, -0.5, 1.0], [3.9, 7.0, 2.0], [0.0, 0.9, -1.0])]
    export_and_compare(torch.jit.script(Whole()), (torch.tensor([1.5, 2.5, 3.5]),), *others)


def test_parameters_that_are_set_are_hidden() -> None:
    scripted = torch.jit.script(Set())
    x, weight = torch.randn(2, 3), scripted.weight.detach().clone()
    with pytest.warns(UserWarning, match="forward changes the attribute weight"):
        found = export(scripted, (x,))(x)
    torch.testing.assert_close(list(found), [weight * 2, x * 15])
    torch.testing.assert_close(scripted.weight, weight)


def test_what_is_deleted_from_a_list_is_gone() -> None:
    export_and_compare(torch.jit.script(Shortened()), (torch.randn(3, 2),), (torch.randn(3, 2),))
