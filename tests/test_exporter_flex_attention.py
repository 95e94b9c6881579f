"""`flex_attention`: functions of one score and its place are written out for all scores at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exporting import assert_same, eager
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from batch_export import export

pytestmark = pytest.mark.sampled

Qkv = tuple[Tensor, Tensor, Tensor]
DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])


class Flexible(torch.nn.Module):
    """Attention in one of its forms, with a bias and a table of its own."""

    def __init__(self, form: Callable[[Flexible, Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.form = form
        self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.25, -1.0, 2.0]))
        self.register_buffer("documents", DOCUMENTS)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Whatever the form says."""
        return self.form(self, q, k, v)


def relative(module: Flexible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def modified(score: Tensor, batch: Tensor, head: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return score + (at - of) * module.slopes[head]

    return flex_attention(q, k, v, score_mod=modified)


def causal(module: Flexible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def modified(score: Tensor, batch: Tensor, head: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return torch.where(at >= of, torch.tanh(score / 5) * 5, -float("inf"))

    return flex_attention(q, k, v, score_mod=modified, scale=0.3)


def nothing_for_the_first(module: Flexible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def modified(score: Tensor, batch: Tensor, head: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return torch.where(at > of, score, -float("inf"))

    return flex_attention(q, k, v, score_mod=modified)


def packed(module: Flexible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def kept(batch: Tensor, head: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return (at >= of) & (module.documents[at] == module.documents[of])

    mask = create_block_mask(kept, None, None, 8, 8, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


def with_sums(module: Flexible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out, further = flex_attention(q, k, v, return_aux=AuxRequest(lse=True))
    return out * further.lse.unsqueeze(-1)


FORMS = {
    "plain": (lambda module, q, k, v: flex_attention(q, k, v), 4, True),
    "a bias for each head": (relative, 4, True),
    "causal, with a soft cap": (causal, 4, True),
    "a row without a score": (nothing_for_the_first, 4, True),
    "shared heads": (lambda module, q, k, v: flex_attention(q, k, v, enable_gqa=True), 2, True),
    "a mask of documents": (packed, 4, False),
    "its sums of exponentials": (with_sums, 4, True),
}


def given(batch: int, length: int, heads: int) -> Qkv:
    """Queries of four heads; keys and values of some."""
    return torch.randn(batch, 4, length, 8), torch.randn(batch, heads, length, 8), torch.randn(batch, heads, length, 8)


ALWAYS = ("plain", "causal, with a soft cap", "a mask of documents")
"""The rest is left to the session `ops`."""


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.ops) for name in FORMS]
)
def test_a_form_of_attention(name: str) -> None:
    form, heads, takes_lengths = FORMS[name]
    module = Flexible(form).eval()
    free = {0: "batch", 2: "length"} if takes_lengths else {0: "batch"}
    program = export(module, given(2, 8, heads), dynamic_shapes=(free, free, free))
    for batch, length in ((2, 8), (3, 8), (1, 8), *(((2, 5), (1, 1)) if takes_lengths else ())):
        inputs = given(batch, length, heads)
        assert_same(program(*inputs), eager(module, inputs))
    program.release()


class Documents(torch.nn.Module):
    """A mask by data, over as many blocks as there are sequences."""

    def forward(self, q: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        mask = create_block_mask(
            lambda b, h, i, j: document[b, i] == document[b, j], q.shape[0], None, q.shape[2], q.shape[2], device="cpu"
        )
        found: torch.Tensor = flex_attention(q, q, q, block_mask=mask)
        return found


def test_a_mask_by_data_with_every_size_free() -> None:
    def given(batch: int, seq: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, 2, seq, 8), torch.randint(0, 2, (batch, seq))

    free = ({0: "batch", 2: "seq"}, {0: "batch", 1: "seq"})
    program = export(Documents(), given(2, 6), dynamic_shapes=free)
    for sizes in ((2, 6), (1, 9)):
        case = given(*sizes)
        torch.testing.assert_close(torch.as_tensor(program(*case)[0]), Documents()(*case), rtol=1e-4, atol=1e-5)
