"""Solutions of linear systems whose leading axes are broadcast against one another, as torch's are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import linalg

from tests.exporting import export_and_compare

Solve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

SOLVES: dict[str, Solve] = {
    "solve": linalg.solve,
    "from_the_right": lambda a, b: linalg.solve(a, b.mT, left=False),
    "triangular": lambda a, b: linalg.solve_triangular(a.tril(), b, upper=False),
    "factors": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b),
    "factors_from_the_right": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False),
    "cholesky": lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a @ a.mT)),
}
LEADS = [((), (2,)), ((2,), ()), ((2,), (2,)), ((2,), (3, 2)), ((3, 1), (1, 2)), ((1,), (2,))]


class Solved(torch.nn.Module):
    def __init__(self, solve: Solve) -> None:
        super().__init__()
        self.solve = solve

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.solve(a, b)


def matrices(lead: tuple[int, ...]) -> torch.Tensor:
    return torch.eye(4) * 3 + torch.randn(*lead, 4, 4) * 0.3


@pytest.mark.sampled
@pytest.mark.parametrize(("of_matrices", "of_sides"), LEADS)
@pytest.mark.parametrize("name", SOLVES)
def test_leading_axes_are_broadcast(name: str, of_matrices: tuple[int, ...], of_sides: tuple[int, ...]) -> None:
    given = matrices(of_matrices), torch.randn(*of_sides, 4, 3)
    export_and_compare(Solved(SOLVES[name]), given, tolerance=1e-3)


@pytest.mark.parametrize("name", ["solve", "factors_from_the_right"])
def test_and_so_are_free_ones(name: str) -> None:
    more = [(matrices((count,)), torch.randn(count, 4, 3)) for count in (1, 5)]
    shapes = ({0: "b"}, {0: "b"})
    given = matrices((2,)), torch.randn(2, 4, 3)
    export_and_compare(Solved(SOLVES[name]), given, *more, tolerance=1e-3, dynamic_shapes=shapes)
    one = [(matrices(()), torch.randn(count, 4, 3)) for count in (1, 5)]
    shapes_of_sides = (None, {0: "b"})
    export_and_compare(Solved(SOLVES[name]), one[1], one[0], tolerance=1e-3, dynamic_shapes=shapes_of_sides)


def test_vectors_stay_vectors() -> None:
    for given in (
        (matrices((2,)), torch.randn(2, 4)),
        (matrices((2,)), torch.randn(4)),
        (matrices(()), torch.randn(4)),
    ):
        export_and_compare(Solved(linalg.solve), given, tolerance=1e-3)
