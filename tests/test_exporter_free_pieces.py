"""`split` by as many lengths as the batch is long, over a free batch: the pieces joined again, or padded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from batch_export.errors import DynamicShapeError, OnnxExporterError
from batch_export.exporter import export
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Images(torch.nn.Module):
    """What is zero is no image; each element of the batch has some."""

    def __init__(self, joined: Callable[[torch.Tensor, torch.Tensor, torch.nn.Linear], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.joined, self.linear = joined, torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, images = x.shape[:2]
        real = (x.reshape(batch * images, -1) != 0).any(1)
        rows = x.reshape(batch * images, *x.shape[2:])[real]
        counts = real.view(batch, images).sum(1)
        return self.joined(rows, counts, self.linear)


def reshaped(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    pieces = [one.reshape(-1, one.shape[-1]) for one in rows.split(counts.tolist())]
    return torch.cat(pieces, dim=0) * 2


def plainly(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    lengths = counts.tolist()
    return torch.cat(list(torch.split(rows, lengths, dim=0)))


def by_a_layer(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    pieces = torch.split(rows, counts.tolist())
    made = [torch.nn.functional.linear(one.flatten(0, 1), linear.weight).tanh() * 3 + 1 for one in pieces]
    return torch.cat([one for one in made] if isinstance(made, list) else made[:1])


def at_once(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    return torch.cat([one.float() for one in rows.split(counts.tolist())]).sum(0)


def _given(batch: int, images: int, seed: int) -> tuple[torch.Tensor]:
    x = torch.randn(batch, images, 3, 4, generator=torch.Generator().manual_seed(seed))
    x[0, -1] = 0
    x[-1, 0] = 0
    return (x,)


@pytest.mark.parametrize("joined", [reshaped, plainly, by_a_layer, at_once])
def test_pieces_of_a_free_number(joined: Callable[..., torch.Tensor]) -> None:
    others = [_given(batch, images, batch) for batch, images in ((3, 2), (1, 3), (5, 3), (2, 2))]
    nothing = (torch.zeros(2, 2, 3, 4),)
    not_a_number = (torch.full((2, 3, 3, 4), torch.nan),)
    shapes = ({0: "batch", 1: "images"},)
    export_and_compare(Images(joined), _given(2, 3, 0), *others, nothing, not_a_number, dynamic_shapes=shapes)


class Padded(torch.nn.Module):
    """Texts one behind the other, each of which is made as long as the longest one."""

    def __init__(self, scaled: bool, **given: object) -> None:
        super().__init__()
        self.scaled, self.given = scaled, given

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        pieces = x.split(lengths.tolist())
        if self.scaled:
            pieces = [torch.nn.functional.gelu(one) * 2 for one in pieces]
        return torch.nn.utils.rnn.pad_sequence(pieces, **self.given) + 1


@pytest.mark.parametrize(
    "padded",
    [
        Padded(False),
        Padded(True, batch_first=True, padding_value=-1.5),
        Padded(False, batch_first=True, padding_value=2, padding_side="left"),
    ],
)
def test_pieces_of_a_free_number_are_padded(padded: Padded) -> None:
    def given(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(sum(lengths), 3), torch.tensor(lengths)

    others = [given(5, 0), given(3, 1, 2, 4), given(4), given(0, 0)]
    export_and_compare(padded, given(2, 4, 1), *others, dynamic_shapes=({0: "rows"}, {0: "texts"}))


class Chunks(torch.nn.Module):
    """Pieces of three rows, and of what is left of each text; their number is known from the data alone."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        counts = (lengths + 2) // 3
        sizes = torch.full((counts.sum(),), 3)
        sizes[counts.cumsum(0) - 1] = lengths - (counts - 1) * 3
        return torch.nn.utils.rnn.pad_sequence(x.split(sizes.tolist()), batch_first=True).sum(-1)


def test_pieces_whose_number_goes_by_the_data_are_padded() -> None:
    x = torch.randn(9, 2)
    others = [(x, torch.tensor(lengths)) for lengths in ([6, 3], [8, 1], [2, 7])]
    export_and_compare(Chunks(), (x, torch.tensor([4, 5])), *others)


def means(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    return torch.cat([one - one.mean(0) for one in rows.split(counts.tolist())])


def of_lengths(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    return torch.cat([one / one.shape[0] for one in rows.split(counts.tolist())])


def torn(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    return torch.cat([one.reshape(4, -1) for one in rows.split(counts.tolist())], 0)


def beside(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    return torch.stack([one for one in rows.split(counts.tolist())])


def picked(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    pieces = [one * 2 for one in rows.split(counts.tolist())]
    return torch.cat([pieces[0], pieces[1]])


def padded_later(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    pieces = [one.flatten(0, 1) for one in rows.split(counts.tolist())]
    return torch.nn.utils.rnn.pad_sequence(pieces)


def counted(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    numbers = iter(range(1, 100))
    return torch.cat([one * next(numbers) for one in rows.split(counts.tolist())])


def kept(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    scales = [3.0, 2.0, 1.0]
    return torch.cat([one * scales.pop() for one in rows.split(counts.tolist())])


def backwards(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    pieces = [one * 2 for one in rows.split(counts.tolist())]
    pieces.reverse()
    return torch.cat(pieces)


def in_other_order(rows: torch.Tensor, counts: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    lengths = counts.tolist()
    lengths[0], lengths[1] = lengths[1], lengths[0]
    return torch.cat([one - one.sum() for one in rows.split(lengths)])


@pytest.mark.parametrize(
    "joined",
    [means, of_lengths, torn, beside, picked, padded_later, counted, kept, backwards, in_other_order],
)
def test_what_does_not_go_row_by_row_is_refused(joined: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(OnnxExporterError):
        export(Images(joined), _given(2, 3, 0), dynamic_shapes=({0: "batch", 1: "images"},))


def test_the_refusal_names_the_axis_and_the_line() -> None:
    with pytest.raises(DynamicShapeError, match=r"batch.*test_exporter_free_pieces\.py"):
        export(Images(means), _given(2, 3, 0), dynamic_shapes=({0: "batch"},))


class WrittenLater(torch.nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, lengths = x.clone(), lengths.clone()
        listed = lengths.tolist()
        pieces = [one + 0 for one in y.split(listed)]
        lengths.mul_(0)
        y.mul_(3)
        return torch.stack(pieces), torch.cat([one - one.sum() for one in y.split(listed)])


def test_what_is_written_later_is_not_in_the_pieces() -> None:
    auto = torch.export.Dim.AUTO
    given = (torch.randn(6, 4), torch.tensor([2, 2, 2]))
    export_and_compare(WrittenLater(), given, dynamic_shapes=({0: auto}, {0: auto}))
