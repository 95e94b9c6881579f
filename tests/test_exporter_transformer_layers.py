"""torch.nn's transformer layers: masks of every kind, free sizes, and not the fast paths that eager takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from exporting import assert_same
from rarer import first

from batch_export.calling.fast_paths import without_fast_paths
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

SIZES = ((2, 6), (1, 9), (3, 1))
FREE = {0: "batch", 1: "seq"}


class Encoder(torch.nn.Module):
    """With a mask that is given, or one of its own."""

    def __init__(self, own: Callable[[int], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.own = own

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        found: torch.Tensor = self.layers(x, mask if self.own is None else self.own(x.shape[1]))
        return found


class Padded(Encoder):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        found: torch.Tensor = self.layers(x, src_key_padding_mask=mask)
        return found


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        causal = self.layers.generate_square_subsequent_mask(x.shape[1])
        found: torch.Tensor = self.layers(x, x, tgt_mask=causal, src_key_padding_mask=mask)
        return found


def _square(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, seq, 8), torch.randn(seq, seq)


def _padding(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, seq, 8), torch.arange(seq)[None] >= torch.arange(seq, seq - batch, -1).clamp(min=1)[
        :, None
    ]


def _alone(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, seq, 8),)


CASES = {
    "a mask that is given": (Encoder(), _square, {0: "seq", 1: "seq"}),
    "a padding mask": (Padded(), _padding, FREE),
    "a causal mask of its own": (Encoder(lambda n: torch.triu(torch.full((n, n), -torch.inf), 1)), _alone, None),
    "a boolean mask of its own": (Encoder(lambda n: torch.ones(n, n).triu(1).bool()), _alone, None),
    "decoder and encoder": (Whole(), _padding, FREE),
}


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("name", first(3, CASES))
def test_masks(name: str, free: bool) -> None:
    module, inputs, of_mask = CASES[name]
    given = inputs(*SIZES[0])
    shapes = (FREE, of_mask)[: len(given)] if free else None
    program = export(module.eval(), given, dynamic_shapes=shapes)
    for sizes in SIZES if free else SIZES[:1]:
        case = inputs(*sizes)
        with torch.no_grad(), without_fast_paths():
            expected = module(*case)
        torch.testing.assert_close(program(*case)[0], expected, rtol=1e-4, atol=1e-5)


def test_fast_paths_are_on_again_afterwards() -> None:
    assert torch.backends.mha.get_fastpath_enabled()
    export(Padded().eval(), _padding(2, 3), verify=True)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("is_masked", [False, True])
def test_what_only_the_fast_path_gives_is_a_warning(is_masked: bool) -> None:
    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            found = self.encoder(x, src_key_padding_mask=mask)
            return (found.masked_fill(mask[..., None], 0.0) if is_masked else found).mean(1)

    padded = torch.arange(5)[None] >= torch.tensor([5, 3])[:, None]
    scattered = torch.tensor([[0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]).bool()
    for mask in (padded, torch.zeros_like(padded), scattered):
        told = _told(Mean(), mask)
        assert len(told) == (0 if is_masked else 1), told
        assert all("fast path of TransformerEncoder gives something else" in one for one in told)


class OfLengths(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1])[None] >= lengths[:, None]
        return self.encoder(x, src_key_padding_mask=mask).mean(1)


class OfTokens(OfLengths):
    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=tokens == 0).mean(1)


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (OfLengths(), torch.tensor([5, 5]), "with places left out by lengths"),
        (OfTokens(), torch.full((2, 5), 7), "with places left out by zeros"),
    ],
    ids=["lengths", "tokens"],
)
def test_an_example_without_padding_is_tried_with_some(model: torch.nn.Module, given: torch.Tensor, words: str) -> None:
    (told,) = _told(model, given)
    assert words in told


def _told(model: torch.nn.Module, given: torch.Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        export(model.eval(), (torch.randn(2, 5, 8), given))
    return [str(one.message) for one in found]


@pytest.mark.parametrize("shorter", [2, 3])
def test_lengths_are_tried_as_lengths(shorter: int) -> None:
    class Padded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            mask = ~(torch.arange(lengths.max())[None] < lengths[:, None])
            return self.layer(x, src_key_padding_mask=mask)

    torch.manual_seed(0)
    model, axes = Padded().eval(), ({0: "n", 1: "b"}, {0: "b"})
    program = export(model, (torch.randn(5, 2, 8), torch.tensor([5, shorter])), dynamic_shapes=axes)
    for lengths in ([1, 1], [2, 1], [7, 3, 4]):
        given = (torch.randn(lengths[0], len(lengths), 8), torch.tensor(lengths))
        assert_same(program(*given), [model(*given).detach()])
    program.release()
