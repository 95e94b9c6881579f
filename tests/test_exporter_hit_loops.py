"""Loops over what is not zero run over every place, and what is written counts where the element is not zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from batch_export.errors import CaptureError
from batch_export.exporter import export
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Experts(torch.nn.Module):
    """A mixture of experts as it is often written: a round for each expert that some token has."""

    def __init__(self, per_token: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.per_token = per_token
        self.router = torch.nn.Linear(8, 4)
        self.experts = torch.nn.ModuleDict({f"expert_{place}": torch.nn.Linear(8, 8) for place in range(4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(self.per_token, -1)
        mixed = torch.zeros_like(x)
        mask = torch.nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            rank, token = torch.where(mask[expert].squeeze(0))
            made = self.experts[f"expert_{expert[0]}"](x[None, token].reshape(-1, 8)) * weights[token, rank, None]
            made *= 0.5
            mixed.index_add_(0, token, made)
        return mixed


class Written(torch.nn.Module):
    """Each round writes something, whatever it is about."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        for column in (x.sum(0) > 0).nonzero().flatten():
            y[:, column] *= 2
            y[0] += column
            torch.nn.functional.relu(y[1], inplace=True)
        for row, column in torch.argwhere(x[:2, :2] > 0):
            y[row, column] = 7
        for column in torch.where(x[0] > 0)[0]:
            y.add_(column)
            torch.ops.aten.mul_.Tensor(y, 2 * column)
        return y


@pytest.mark.parametrize("module", [Experts(), Experts(2), Written()], ids=["one", "two", "writes"])
def test_every_place_that_data_may_choose(module: torch.nn.Module) -> None:
    torch.manual_seed(1)
    others = [(torch.randn(size, 8),) for size in (2, 3, 3, 5, 9)] + [(-torch.ones(3, 8),), (torch.zeros(3, 8),)]
    export_and_compare(module, (torch.randn(3, 8),), *others, dynamic_shapes=({0: "tokens"},))


class Spare(torch.nn.Module):
    """One element more than there are rows and names, as a place for what is nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.arange(8.0).reshape(4, 2))
        self.factors = {f"f{place}": float(place) for place in range(4)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(2)
        for place in torch.cat([x.sum(0), torch.zeros(1)]).gt(0).nonzero():
            y += self.rows[place[0]]
        for place in torch.cat([x.sum(0), torch.zeros(1)]).gt(0).nonzero():
            y += self.factors[f"f{place[0]}"]
        return y


def test_places_at_which_eager_fails_are_left_out() -> None:
    export_and_compare(Spare(), (torch.randn(3, 4),), (torch.ones(3, 4),), (-torch.ones(3, 4),))


class Wrong(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place in (x.sum(0) > 0).nonzero():
            x = x + torch.zeros(2)[5] * place
        return x


def test_a_loop_whose_body_fails_everywhere_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"data-dependent decision.*in \(x.sum\(0\) > 0\).nonzero"):
        export(Wrong(), (torch.randn(3, 4),))


class Ending(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rounds, total, found = 0, x[0], []
        for place in (x.sum(0) > 0).nonzero():
            if self.kind == "counts":
                rounds += 1
            elif self.kind == "goes on with a sum":
                total = total + place
            elif self.kind == "fills a list":
                found.append(x[0])
            elif self.kind == "fills a list of the module":
                self.seen.append(x[0])
            elif self.kind == "makes a tensor another one":
                found_size = total.new_zeros(1)
                found_size.resize_(2)
            elif self.kind == "ends early":
                total = x[1] * place
                break
        return sum([*found, *self.seen], total) + rounds


KINDS = (
    "counts",
    "goes on with a sum",
    "fills a list",
    "fills a list of the module",
    "makes a tensor another one",
    "ends early",
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_by_the_number_of_rounds_is_refused_with_its_line(kind: str) -> None:
    with pytest.raises(CaptureError, match=r"data-dependent decision.*test_exporter_hit_loops\.py:\d+"):
        export(Ending(kind), (torch.randn(3, 4),))


class Kept(torch.nn.Module):
    """What a loop is over may be enumerated, or gathered in a list: no round is left out of these."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = (x.sum(0) > 0).nonzero()
        y = torch.zeros(4)
        if self.kind == "numbered":
            for number, place in enumerate(places):
                y[place] += number
        elif self.kind == "gathered":
            y += len([place for place in places])
        else:
            last = x.sum()
            for place in places:
                last = x[0, place].sum()
            y += last
        return y


@pytest.mark.parametrize("kind", ["numbered", "gathered", "the last one"])
def test_loops_over_something_else_are_refused(kind: str) -> None:
    with pytest.raises(CaptureError, match="data-dependent decision"):
        export(Kept(kind), (torch.randn(3, 4),))


def test_text_of_a_constant_is_the_number() -> None:
    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            factors = {"a1": 3, "a2": 5}
            return x * factors[f"a{torch.tensor([1, 2])[1]}"]

    export_and_compare(Named(), (torch.randn(3),))


def _set_number(x: torch.Tensor, out: torch.Tensor) -> None:
    for place in x.nonzero():
        out[place] = 7.0


def _set_beside(x: torch.Tensor, out: torch.Tensor) -> None:
    for place in x.nonzero():
        out[(place + 1) % 4] = out[place] * 3
        out[int(place)] = out[int(place) - 1] + 1


def _set_slices(x: torch.Tensor, out: torch.Tensor) -> None:
    for place in x.nonzero().flatten():
        out[place : place + 2] = 5.0


def _set_where(x: torch.Tensor, out: torch.Tensor) -> None:
    for place in x.nonzero():
        out[x == x[place]] = 3.0
        out[torch.where(x == x[place])[0]] += 1


def _set_all(x: torch.Tensor, out: torch.Tensor) -> None:
    for place in x.nonzero():
        out[:] = x * place


def _set_by_torchs_own(x: torch.Tensor, out: torch.Tensor) -> None:
    for _ in x.nonzero():
        torch.nn.init.constant_(out[1:], 3.0)


class Setting(torch.nn.Module):
    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("kept", torch.ones(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, out = x.clone(), torch.ones(4)
        self.write(x, out)
        self.write(x, self.kept)
        self.write(x, x)
        return out, x, self.kept + 0


@pytest.mark.parametrize(
    "write",
    [_set_number, _set_beside, _set_slices, _set_where, _set_all, _set_by_torchs_own],
    ids=lambda one: one.__name__.removeprefix("_set_"),
)
def test_what_is_set_stays_where_no_round_is(write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    first, *more = (torch.tensor(numbers) for numbers in ([1.0, 0, 2, 0], [0.0, 0, 0, 0], [0.0, 0, 0, 5]))
    program = export(Setting(write), (first,))
    for x in (first, *more):
        expected = Setting(write)(x.clone())
        for one, other in zip(program(x.clone()), expected, strict=False):
            torch.testing.assert_close(one, other)


class Listed(torch.nn.Module):
    """The places are gone over as Python's numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.router = torch.nn.Linear(8, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        mixed = torch.zeros_like(x)
        mask = torch.nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        hit = (mask.sum((-1, -2)) > 0).nonzero()
        if self.kind == "rows":
            for (expert,) in hit.tolist():
                rank, token = torch.where(mask[expert])
                mixed.index_add_(0, token, self.experts[expert](x[token]) * weights[token, rank, None])
        elif self.kind == "numbers":
            for expert in hit.squeeze(-1).cpu().tolist():
                rank, token = torch.where(mask[expert])
                mixed[token] += self.experts[expert](x[token]) * weights[token, rank, None] * (expert + 1)
        elif self.kind == "sum":
            total = 0
            for expert in hit.flatten().tolist():
                total += expert
            mixed = mixed + total
        return mixed


@pytest.mark.parametrize("kind", ["rows", "numbers"])
def test_lists_of_places_are_gone_over_alike(kind: str) -> None:
    torch.manual_seed(1)
    others = [(torch.randn(size, 8),) for size in (2, 3, 5, 9)] + [(-torch.ones(3, 8),), (torch.zeros(3, 8),)]
    export_and_compare(Listed(kind), (torch.randn(3, 8),), *others, dynamic_shapes=({0: "tokens"},))


def test_a_sum_over_a_list_of_places_is_refused_with_its_line() -> None:
    with pytest.raises(CaptureError, match=r"data-dependent decision.*test_exporter_hit_loops\.py:\d+"):
        export(Listed("sum"), (torch.randn(3, 8),))
