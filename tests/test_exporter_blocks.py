"""Repeated blocks: the graph is the one that tracing every block gives, and what is not alike is traced."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from batch_export import export
from batch_export.exporter.capture.blocks import Block
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
DEPTH = 5
OUTSIDE = torch.ones(4)


class Layer(nn.Module):
    def __init__(self, index: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        self.index, self.scale = index, scale
        self.inner = nn.Linear(4, 4)
        self.register_buffer("offset", torch.full((4,), float(index)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x)) + self.offset


class Scaled(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


class Indexed(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.index if self.index else super().forward(x)


class Cast(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.to(torch.float32)).clone().add_(self.offset.float())


class Constant(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / torch.sqrt(torch.tensor(4.0)) + OUTSIDE


class Partial(Layer):
    """The last layers have another approximation."""

    def __init__(self, index: int = 0, scale: float = 1.0) -> None:
        super().__init__(index, scale)
        self.act = functools.partial(nn.functional.gelu, approximate="tanh" if index < 3 else "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(super().forward(x))


class OwnConstant(Layer):
    def __init__(self, index: int = 0, scale: float = 1.0) -> None:
        super().__init__(index, scale)
        self.plain = torch.tensor(float(max(index, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.plain


class Several(Layer):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"x": super().forward(x), "same": x, "weight": self.inner.weight, "size": x.shape[0], "none": None}


class Writing(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.view(-1)[0] += 1
        return super().forward(x)


class Remembering(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.offset.add_(1)
        return super().forward(x)


class Collecting(Layer):
    def forward(self, x: torch.Tensor, seen: list[torch.Tensor]) -> torch.Tensor:
        seen.append(x)
        return super().forward(x)


class Sized(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (x > 0).nonzero().sum()


class Branching(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (super().forward(x),))
        return y


CALLS = {"count": 0}


class Counting(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS["count"] += 1
        return super().forward(x) * CALLS["count"]


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Unpacking(Stack):
    def forward(self, x: torch.Tensor) -> Any:
        kept = []
        for layer in self.layers:
            found = layer(x)
            kept += [found["same"], found["weight"] * found["size"]]
            x = found["x"]
        return x, kept


class Passing(Stack):
    def forward(self, x: torch.Tensor) -> Any:
        seen: list[torch.Tensor] = []
        for layer in self.layers:
            x = layer(x, seen)
        return x, seen


class Closing(Stack):
    """Every layer reads the tensor that the one before it left outside."""

    def __init__(self) -> None:
        super().__init__()
        outside: list[torch.Tensor] = []

        class Reading(Layer):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = super().forward(x) + sum(outside)
                outside[:] = [y * 2]
                return y

        self.layers = nn.ModuleList(Reading() for _ in range(DEPTH))


def hooked(*layers: nn.Module) -> nn.Module:
    for layer in layers[2:]:
        layer.register_forward_hook(lambda module, given, result: result * 2)
    return Stack(*layers)


def repeated(layer: nn.Module) -> nn.Module:
    return Stack(*[layer] * DEPTH)


def tied(*layers: Any) -> nn.Module:
    for layer in layers:
        layer.inner.weight = layers[0].inner.weight
    return Stack(*layers)


class Twofold(Layer):
    def __init__(self, index: int = 0, scale: float = 1.0) -> None:
        super().__init__(index, scale)
        self.outer = nn.Linear(4, 4)
        if index < 2:
            self.outer.weight = self.inner.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(super().forward(x))


class Given(Layer):
    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x) @ (weight if weight is not None else self.inner.weight) + self.inner.weight[0]


class Giving(Stack):
    """The first two layers are given their own weight, the others that of the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first: Any = self.layers[0]
        for at, layer in enumerate(self.layers):
            own: Any = layer
            x = layer(x, own.inner.weight if at < 2 else first.inner.weight)
        return x


def nested() -> nn.Module:
    return Stack(*(nn.Sequential(Layer(1), Stack(Layer(2), Layer(3))) for _ in range(4)))


def layers(kind: type[Layer], scale: Callable[[int], float] = lambda index: 1.0) -> list[Layer]:
    torch.manual_seed(0)
    return [kind(index, scale(index)) for index in range(DEPTH)]


SHARED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "alike": (lambda: Stack(*layers(Layer)), DEPTH - 2),
    "a number that none of them reads": (lambda: Stack(*layers(Layer, float)), DEPTH - 2),
    "one number in all": (lambda: Stack(*layers(Scaled, lambda index: 3.0)), DEPTH - 2),
    "two numbers in turn": (lambda: Stack(*layers(Scaled, lambda index: index % 2)), 1),
    "a cast that changes nothing, and a write of its own": (lambda: Stack(*layers(Cast)), DEPTH - 2),
    "constants": (lambda: Stack(*layers(Constant)), DEPTH - 2),
    "results of every kind": (lambda: Unpacking(*layers(Several)), DEPTH - 2),
    "a function with arguments": (lambda: Stack(*layers(Partial)), 1),
    "one layer again and again": (lambda: repeated(Layer()), DEPTH - 3),
    "one weight in all": (lambda: tied(*layers(Layer)), DEPTH - 2),
    "nested": (nested, 6),
    "weights that are one tensor in the first two only": (lambda: Stack(*layers(Twofold)), 1),
    "an input that is a weight in the first two only": (lambda: Giving(*layers(Given)), 1),
    "layers of torch": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), DEPTH).eval(),
        DEPTH - 2,
    ),
}
TRACED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "numbers of their own": (lambda: Stack(*layers(Indexed)), ""),
    "tensors of their own that are no buffers": (lambda: Stack(*layers(OwnConstant)), ""),
    "hooks": (lambda: hooked(*layers(Layer)), "has hooks"),
    "a write to the input": (lambda: Stack(*layers(Writing)), "may write to what the block is given"),
    "a write to a buffer": (lambda: Stack(*layers(Remembering)), "may write to what the block is given"),
    "a list that grows": (lambda: Passing(*layers(Collecting)), "changes a list or dict"),
    "sizes by data": (lambda: Stack(*layers(Sized)), "depends on data"),
    "a branch": (lambda: Stack(*layers(Branching)), "has a cond"),
    "a tensor from outside": (Closing, "neither its input nor its weight"),
    "a global number": (lambda: Stack(*layers(Counting)), "changes while the model runs"),
}


def written(captured: Captured) -> list[str]:
    """A graph as text."""
    numbers: dict[torch.fx.Node, int] = {}
    lines = []
    for node in captured.program.graph.nodes:
        numbers[node] = len(numbers)
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: numbers[one])
        made = [
            (tuple(map(str, one.shape)), one.dtype, tuple(map(str, one.stride())))
            if isinstance(one, torch.Tensor)
            else one
            for one in torch.utils._pytree.tree_leaves(node.meta.get("val"))
        ]
        modules = [*(node.meta.get("nn_module_stack") or {}).values()]
        target = "" if node.op == "placeholder" else str(node.target)
        name = re.sub(r"_\d+$", "", node.name)  # numbers count sizes, which are written where first asked
        lines.append(f"{node.op} {name} {target} {arguments} {made} {modules}")
    return lines


def both(make: Callable[[], nn.Module]) -> tuple[Captured, Captured]:
    found = []
    for blocks in (True, False):
        CALLS["count"] = 0
        model = make().eval()
        found.append(capture(model, (X.clone(),), dynamic_shapes=({0: "batch"},), capture_blocks=blocks))
    return found[0], found[1]


def stamped(blocks: list[Block]) -> int:
    return sum(len(block.stamped) for block in blocks)


@pytest.mark.parametrize("case", SHARED)
def test_shared_blocks_give_the_graph_of_tracing_each(case: str) -> None:
    make, expected = SHARED[case]
    shared, plain = both(make)
    assert stamped(shared.blocks) == expected
    assert not plain.blocks
    assert written(shared) == written(plain)


@pytest.mark.parametrize("case", TRACED)
def test_what_is_not_alike_is_traced(case: str) -> None:
    make, reason = TRACED[case]
    shared, plain = both(make)
    assert stamped(shared.blocks) == 0
    assert any(reason in block.reason for block in shared.blocks)
    assert written(shared) == written(plain)


def test_each_copy_has_its_own_weights() -> None:
    model = Stack(*layers(Layer))
    captured = capture(model, (X,))
    torch.testing.assert_close(captured.program.module()(X), model(X))


def test_a_program_with_blocks_is_tried_with_the_sizes_that_they_read() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)  # asks for the batch more than once
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    captured = capture(model, (X,), dynamic_shapes=({0: "batch"},))
    assert stamped(captured.blocks) == 1
    assert not captured.restrictions
    program = captured.traced.module(check_guards=False)
    torch.testing.assert_close(program(X[:1]), model(X[:1]))


class Hooking(nn.Module):
    """Registers hooks in its first call, and returns what they collected."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers(Layer))
        self.collected: list[torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not getattr(self, "hooked", False):
            for layer in self.layers:
                layer.register_forward_hook(self.collect)
            self.hooked = True
        found: list[torch.Tensor] = []
        self.collected = found
        for layer in self.layers:
            x = layer(x)
        self.collected = None
        return (x, *found)

    def collect(self, layer: nn.Module, given: object, result: torch.Tensor) -> None:
        del layer, given
        if self.collected is not None:
            self.collected.append(result)


def test_hooks_that_forward_registers_are_called_for_each_block_and_do_not_outlive_the_capture() -> None:
    model = Hooking()
    captured = capture(model, (X,))
    assert stamped(captured.blocks) == 0
    eager = model(X)
    assert len(eager) == DEPTH + 1
    torch.testing.assert_close(captured.program.module()(X), eager)


def test_classes_are_as_before() -> None:
    before = dict(vars(Scaled))
    capture(Stack(*layers(Scaled, float)), (X,))
    assert dict(vars(Scaled)) == before


def test_a_failure_while_sharing_is_a_capture_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from batch_export.exporter.capture import block_copies

    def broken(*arguments: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(block_copies, "_like", broken)
    captured = capture(Stack(*layers(Layer)), (X,))
    assert captured.attempts[0].error == ""
    assert [block.reason for block in captured.blocks] == ["RuntimeError while sharing"]
    assert stamped(captured.blocks) == 0


def test_the_report_tells_what_was_shared(tmp_path: Path) -> None:
    export(Stack(*layers(Layer)), (X,), report=True, artifacts_dir=tmp_path)
    assert "| Layer | 2 | 3 |  |" in next(tmp_path.glob("*.md")).read_text()
