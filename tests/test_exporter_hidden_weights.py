"""Weights of repeated blocks are kept from torch while it captures; the program has them as if it had seen them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
DEPTH = 6


class Layer(nn.Module):
    def __init__(self, kind: int = 0) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.rand(4), requires_grad=False)
        self.register_buffer("offset", torch.rand(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x)) * self.scale + self.offset


class Kinds(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if self.kind else torch.tanh(super().forward(x))


class Casting(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale.to(torch.float32) + self.inner(x)


class Stack(nn.Module):
    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Summing(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + sum((one.sum() for one in self.parameters()), torch.zeros(()))


class Reading(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last: Layer = self.layers[-1]  # type: ignore[assignment]
        return super().forward(x @ last.inner.weight) + last.scale


class Backwards(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Twice(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(x))


class Leaving(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x) if at != 3 else x
        return x


class Growing(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x if at % 2 else torch.cat([x, x]))
        return x


class Inside(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = self.layers[-1]
        y: torch.Tensor = torch.cond(x.sum() > 0, lambda a: last(a), lambda a: a - 1, (super().forward(x),))
        return y


class Shared(nn.Module):
    """Two stacks in one, the first of which is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other = Stack(layers()), Stack(layers())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.other(self.first(x)) + self.first(x)
        return y


def layers(kind: type[Layer] = Layer, modulus: int = 1) -> list[Layer]:
    torch.manual_seed(0)
    return [kind(at % modulus) for at in range(DEPTH)]


def tied() -> nn.Module:
    made = layers()
    made[4].inner.weight = made[5].inner.weight
    made[3].scale = nn.Parameter(made[2].inner.weight.detach()[0], requires_grad=False)
    return Stack(made)


def collided() -> nn.Module:
    model = Stack(layers())
    model.layers[4].register_parameter("Scale", nn.Parameter(torch.rand(4)))
    model.register_parameter("layers_5_scale", nn.Parameter(torch.rand(4)))
    return model


CASES: dict[str, Callable[[], nn.Module]] = {
    "all alike": lambda: Stack(layers()),
    "two kinds in turn": lambda: Stack(layers(Kinds, 2)),
    "a cast that changes nothing": lambda: Stack(layers(Casting)),
    "a sum over all of them": lambda: Summing(layers()),
    "one of them outside of its block": lambda: Reading(layers()),
    "another order": lambda: Backwards(layers()),
    "every layer twice": lambda: Twice(layers()),
    "a layer that is not called": lambda: Leaving(layers()),
    "layers of other sizes": lambda: Growing(layers()),
    "a layer in a branch": lambda: Inside(layers()),
    "a stack that is called twice": Shared,
    "shared weights and memory": tied,
    "names that are one in the graph": collided,
    "one layer that is trained": lambda: Stack([*layers()[:5], Layer().requires_grad_(True)]),
}


def described(captured: Captured) -> list[object]:
    program = captured.program
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return [
        [(node.name, node.target, sorted(node.meta), node.meta.get("tensor_meta")) for node in nodes],
        [(node.meta["val"].shape, node.meta["val"].requires_grad, type(node.meta["val"])) for node in nodes],
        program.graph_signature.input_specs,
        list(program.state_dict),
        [node.name for node in program.graph.nodes if node.op == "output"],
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_program_is_the_one_of_a_capture_with_all_weights(case: str) -> None:
    model = CASES[case]().eval()
    before = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    captured = capture(model, (X.clone(),))
    plain = capture(model, (X.clone(),), capture_blocks=False)
    assert described(captured) == described(plain)
    found, expected = ([str(node.target) for node in one.program.graph.nodes] for one in (captured, plain))
    assert found == expected
    assert all(captured.program.state_dict[name] is model.get_parameter(name) for name, _ in model.named_parameters())
    assert {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()} == before
    captured.program.validate()
    torch.testing.assert_close(captured.program.module()(X), model(X))
    assert all(type(one._parameters) is dict for one in model.modules())


def test_torch_does_not_see_the_weights_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = torch.export.export

    def exporting(module: nn.Module, *args: object, **kwargs: object) -> torch.export.ExportedProgram:
        seen.append(len(list(module.parameters())))
        return original(module, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.export, "export", exporting)
    capture(Stack(layers()), (X,))
    assert seen == [2 * 3]


def test_weights_are_back_after_a_failure() -> None:
    class Failing(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ValueError("broken")

    model = Failing(layers())
    with pytest.raises(Exception, match="broken"):
        capture(model, (X,))
    assert len(list(model.parameters())) == DEPTH * 3
