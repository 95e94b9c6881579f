"""Questions on sizes that have a name are asked where the name is; one that stands for something else keeps it."""

from __future__ import annotations

import ast

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from batch_export.exporter import export
from batch_export.exporter.capture.named_questions import put_in_place
from tests.exporting import assert_same

pytestmark = pytest.mark.sampled

_ODD = "odd = h % 2 == 1 or w % 2 == 1"


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ([_ODD, "if odd: x = pad(x)"], ["h % 2 == 1 or w % 2 == 1"]),
        ([_ODD, "y = f(x)", "if not odd: x = pad(x)"], ["not (h % 2 == 1 or w % 2 == 1)"]),
        ([_ODD, "if odd: x = pad(x)", "if odd: x = x[:h]"], ["h % 2 == 1 or w % 2 == 1"] * 2),
        ([_ODD, "x = pad(x) if odd else x"], ["h % 2 == 1 or w % 2 == 1"]),
        (["odd = x.shape[1] % 2 == 1", "if odd: x = pad(x)"], ["x.shape[1] % 2 == 1"]),
        (["odd = x.shape[1] % 2 == 1", "if odd: x = pad(x)", "if odd: x = x[:-1]"], ["odd", "odd"]),
        (["odd = x.shape[1] % 2 == 1", "x = f(x)", "if odd: x = pad(x)"], ["odd"]),
        ([_ODD, "h += 1", "if odd: x = pad(x)"], ["odd"]),
        ([_ODD, "for h in f(x): y = h", "if odd: x = pad(x)"], ["odd"]),
        (["odd = s[0] % 2 == 1", "s[0] = 4", "if odd: x = pad(x)"], ["odd"]),
        (["odd = s[0] % 2 == 1", "s.reverse()", "if odd: x = pad(x)"], ["odd"]),
        (["odd = self.n % 2 == 1", "self.n = 4", "if odd: x = pad(x)"], ["odd"]),
        ([_ODD, "if odd: x = pad(x)", "return odd"], ["odd"]),
        ([_ODD, "if odd and h > 3: x = pad(x)"], ["odd and h > 3"]),
        ([_ODD, "odd = odd and h > 3", "if odd: x = pad(x)"], ["odd"]),
        (["if odd: x = pad(x)", _ODD], ["odd"]),
        (["odd = is_odd(h) == 1", "if odd: x = pad(x)"], ["odd"]),
        ([_ODD, "g = lambda: odd", "if odd: x = pad(x)"], ["odd"]),
        (["odd = h % 2", "if odd: x = pad(x)"], ["odd"]),
        (["for i in s:", " odd = h > i", " if odd: x = pad(x)"], ["h > i"]),
        (["for i in s:", " odd = h > i", " if odd: h = i"], ["h > i"]),
        (["for i in s:", " odd = h > i", "if odd: x = pad(x)"], ["odd"]),
    ],
)
def test_what_is_asked_where_a_name_is(lines: list[str], asked: list[str]) -> None:
    tree = ast.parse("\n".join(["def f(self, x, h, w, s):", *(f" {one}" for one in lines)]))
    put_in_place(tree)

    assert [ast.unparse(one.test) for one in ast.walk(tree) if isinstance(one, (ast.If, ast.IfExp))] == asked


class Merged(torch.nn.Module):
    """Patches of an image of any size, and four of them as one, both with a border where there is not enough."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 2, 2)
        self.reduced = torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[2:]
        if width % 2 != 0:
            x = F.pad(x, (0, 2 - width % 2))
        if height % 2 != 0:
            x = F.pad(x, (0, 0, 0, 2 - height % 2))
        x = self.patches(x).permute(0, 2, 3, 1)
        batch, height, width, _ = x.shape
        has_border = (
            (height % 2 == 1)  # a question for each axis
            or (width % 2 == 1)
        )  # fmt: skip
        if has_border:
            x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
        quarters = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduced(torch.cat(quarters, -1).view(batch, -1, 32))


def test_a_border_by_a_question_with_a_name_is_there_at_every_size() -> None:
    torch.manual_seed(0)
    model = Merged().eval()
    axes = {0: "b", 2: "h", 3: "w"}
    program = export(model, (torch.randn(2, 3, 20, 28),), dynamic_shapes=(axes,))

    for height, width in ((24, 24), (17, 19), (12, 36), (31, 14), (6, 6), (1, 2)):
        x = torch.randn(1, 3, height, width)
        assert_same(program(x), [model(x).detach()])
