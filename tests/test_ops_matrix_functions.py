"""Eigenvalues, singular values and what follows from them, compared by what is determined: values and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare

from batch_export.exporter import export

pytestmark = pytest.mark.sampled


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> object:
        return self.function(*given)


def symmetric(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT - x - x.mT


def by_eigenvectors(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = torch.linalg.eigh(x, UPLO="U")
    return values, vectors @ torch.diag_embed(values) @ vectors.mT, vectors.mT @ vectors


def by_singular_vectors(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    left, values, right = torch.linalg.svd(x)
    count = values.shape[-1]
    whole = left[..., :count] @ torch.diag_embed(values) @ right[..., :count, :]
    return values, whole, left.mT @ left, right @ right.mT


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eigenvectors": lambda x: by_eigenvectors(symmetric(x @ x.mT)),
    "singular vectors": by_singular_vectors,
    "values only": torch.linalg.svdvals,
    "pseudo-inverse": torch.linalg.pinv,
    "of a symmetric matrix": lambda x: torch.linalg.pinv(x @ x.mT, hermitian=True, rtol=1e-3),
    "rank": torch.linalg.matrix_rank,
    "nuclear norm": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "exponential": lambda x: torch.matrix_exp(x @ x.mT),
}


@pytest.mark.parametrize("shape", [(2, 3), (4, 2), (9, 5)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_over_a_free_batch(name: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    given, other = torch.randn(2, *shape) / 3.0, torch.randn(5, *shape) / 3.0
    export_and_compare(Call(FUNCTIONS[name]), (given,), (other,), dynamic_shapes=(({0: "batch"},),), tolerance=1e-4)


def test_of_equal_eigenvalues_beside_others() -> None:
    torch.manual_seed(3)
    steps = torch.randint(-3, 4, (64, 1, 3)).float()
    matrices = steps.mT @ steps / 2.0 + torch.eye(3)
    export_and_compare(
        Call(lambda x: (torch.linalg.eigvalsh(x), by_eigenvectors(x))), (matrices,), tolerance=1e-5, opset_version=20
    )


@pytest.mark.parametrize("name", ["eigenvectors", "singular vectors", "values only", "exponential"])
def test_over_free_rows_and_columns(name: str) -> None:
    torch.manual_seed(1)
    given, other = torch.randn(5, 4) / 3.0, torch.randn(3, 6) / 3.0
    axes = (({0: "rows", 1: "columns"},),)
    export_and_compare(Call(FUNCTIONS[name]), (given,), (other,), dynamic_shapes=axes, tolerance=1e-4)


@pytest.mark.parametrize(
    "matrix",
    [torch.zeros(3, 4), torch.ones(4, 4), torch.eye(3) * 2.0, torch.diag(torch.tensor([1e-5, 3.0, -3.0, 0.0]))],
    ids=["nothing", "of rank one", "equal values", "of two sizes"],
)
def test_of_matrices_without_full_rank(matrix: torch.Tensor) -> None:
    names = ("singular vectors", "pseudo-inverse", "rank")
    module = Call(lambda x: [FUNCTIONS[name](x) for name in names])
    export_and_compare(module, (matrix,), tolerance=1e-5)


def test_vectors_have_the_documented_signs() -> None:
    torch.manual_seed(2)
    x = torch.randn(5, 5)
    made = export(Call(lambda x: (torch.linalg.eigh(symmetric(x))[1], torch.linalg.svd(x)[2].mT)), (x,))(x)
    for vectors in made:
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        assert bool((largest > 0).all())


def test_float64_is_as_exact_as_the_dtype() -> None:
    torch.manual_seed(3)
    x = torch.randn(12, 12, dtype=torch.float64)
    x = x + x.mT
    (actual,) = export(Call(torch.linalg.eigvalsh), (x,))(x)
    torch.testing.assert_close(actual, torch.linalg.eigvalsh(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_products_of_reflections(left: bool, transpose: bool) -> None:
    torch.manual_seed(4)

    def every(x: torch.Tensor, other: torch.Tensor) -> object:
        packed, factors = torch.geqrf(x)
        product = torch.linalg.householder_product(packed, factors)
        return packed, factors, product, torch.ormqr(packed, factors, other, left, transpose)

    export_and_compare(Call(every), (torch.randn(2, 5, 3), torch.randn(2, 5, 5)), tolerance=1e-5)


def test_a_large_exponent_is_halved_and_squared_back() -> None:
    x = torch.tensor([[0.0, 20.0], [-20.0, -1.0]])
    export_and_compare(Call(torch.matrix_exp), (x,), tolerance=1e-4)


def test_norms_and_condition_numbers_of_a_free_number_of_matrices() -> None:
    class Norms(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            orders = (2, -2, 1, -1, float("inf"), float("-inf"))
            norms = [torch.linalg.matrix_norm(x, order) for order in orders]
            kept = [torch.linalg.norm(x, order, (0, 2), keepdim=True) for order in (2, 1, float("-inf"))]
            return norms, kept, [torch.linalg.cond(x, order) for order in (*orders, "fro")]

    torch.manual_seed(5)
    singular = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    sizes = [(torch.randn(count, 3, 3),) for count in (2, 1, 5)]
    export_and_compare(Norms(), *sizes, dynamic_shapes=({0: "n"},), tolerance=1e-4)
    inverse = export(Call(lambda x: torch.linalg.cond(x, 1)), (sizes[0][0],), dynamic_shapes=(({0: "n"},),))
    (actual,) = inverse(torch.stack([torch.eye(3), singular]))
    assert actual.tolist() == [1.0, float("inf")]


def test_error_codes_say_which_pivot_failed() -> None:
    class Codes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            factored = (torch.linalg.lu_factor_ex(part).info for part in (x[:, :2], x[:, :, :2]))
            return torch.linalg.inv_ex(x).info, torch.linalg.cholesky_ex(x + x.mT).info, *factored

    singular = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    given = torch.stack([singular, torch.eye(3), torch.zeros(3, 3)])
    export_and_compare(Codes(), (given[:2],), (given,), (given[:0],), dynamic_shapes=({0: "n"},))
