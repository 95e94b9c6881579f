"""Sums over named axes with free sizes are matrix products, also of nothing; with fixed sizes one operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from exporting import assert_same, eager
from torch.nn import functional as F  # noqa: N812

from batch_export import export
from batch_export.errors import DecompositionError

pytestmark = pytest.mark.sampled


class Product(torch.nn.Module):
    """An equation of two tensors."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Whatever the equation says."""
        return torch.einsum(self.equation, x, y)


SIZES = {"h": 6, "n": 2, "d": 3}
EQUATIONS = {
    "sbh,hnd->sbnd": 3,
    "hnd,sbh->sbnd": 3,
    "sbnd,hnd->sbh": None,
    "sbnd,tbnd->bnst": 4,
    "bnst,tbnd->sbnd": 4,
    "bns,bnd->bsd": None,
    "bshd,bsnd->bhn": None,
    "bsh,bsh->bsh": 1,
    "bs,bd->bsd": None,
    "sb,hd->bdsh": None,
    "bs,bs->": None,
    "s,s->": None,
    "bsh,bnd->bshnd": None,
    "bhs,bsnd->bhnd": None,
    "bsnh,bdh->bsnd": None,
    "hbs,hd->bsd": None,
    "bhn,bhs->bns": None,
}


def tensors(equation: str, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both factors; `s` and `t` are equally long."""
    sizes = {**SIZES, "b": batch, "s": length, "t": length}
    left, right = equation.partition("->")[0].split(",")
    return torch.randn([sizes[one] for one in left]), torch.randn([sizes[one] for one in right])


@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_product_over_free_axes(equation: str) -> None:
    names = {"b": "batch", "s": "seq", "t": "seq"}
    shapes = [
        {place: names[one] for place, one in enumerate(part) if one in names}
        for part in equation.partition("->")[0].split(",")
    ]
    module = Product(equation).eval()
    program = export(module, tensors(equation, 3, 5), dynamic_shapes=tuple(shapes))
    operators = [node.op_type for node in program.model.graph]
    assert "Einsum" not in operators
    assert "MatMul" in operators or "Mul" in operators
    expected = EQUATIONS[equation]
    assert expected is None or len(operators) == expected, operators
    for batch, length in ((3, 5), (1, 1), (1, 4), (2, 1), (0, 3), (2, 0), (0, 0)):
        given = tensors(equation, batch, length)
        assert_same(program(*given), eager(module, given))
    program.release()


@pytest.mark.parametrize("shape", [(5, 0), (0, 3), (0, 0)])
def test_a_product_of_nothing_of_fixed_sizes(shape: tuple[int, int]) -> None:
    module = Product("ij,ij->i").eval()
    given = torch.zeros(shape), torch.zeros(shape)
    program = export(module, given)
    assert_same(program(*given), eager(module, given))
    onnx.checker.check_model(program.model_proto, full_check=True)


OTHERS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "three factors": (lambda x: torch.einsum("bi,bj,bk->bijk", x, x, x), 1),
    "one factor": (lambda x: torch.einsum("bi->ib", x), 1),
    "an axis that is summed alone": (lambda x: torch.einsum("bi,bj->i", x, x), 1),
    "a diagonal": (lambda x: torch.einsum("bii,bj->bij", x.unsqueeze(2) * x.unsqueeze(1), x), 1),
    "an ellipsis": (lambda x: torch.einsum("...i,...i->...", x, x), 1),
    "no arrow": (lambda x: torch.einsum("bi,bj", x, x), 1),
    "an axis of one beside more": (lambda x: torch.einsum("bi,bi->i", x, x[:1]), 1),
    "a transposition that the runtime gets wrong": (
        lambda x: torch.einsum("ibd,jbd->bij", x.view(2, -1, 2), x.view(2, -1, 2)),
        0,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_product_of_two_is_taken_apart(name: str) -> None:
    function, lowest = OTHERS[name]
    program = export(function, (torch.randn(3, 4),), dynamic_shapes=({0: "batch"},))
    assert "Einsum" not in {node.op_type for node in program.model.graph}
    for batch in (3, 1, 5, *((0,) if not lowest else ())):
        given = torch.randn(batch, 4)
        torch.testing.assert_close(program(given)[0], function(given), atol=1e-5, rtol=1e-5)
    program.release()


@pytest.mark.parametrize("name", OTHERS)
def test_axes_that_are_never_empty_by_declaration_leave_it_one_operator(name: str) -> None:
    function, _ = OTHERS[name]
    batch = torch.export.Dim("batch", min=1)
    program = export(function, (torch.randn(4, 4),), dynamic_shapes=({0: batch},))
    assert "Einsum" in {node.op_type for node in program.model.graph}
    for count in (4, 1, 5):
        given = torch.randn(count, 4)
        torch.testing.assert_close(program(given)[0], function(given), atol=1e-5, rtol=1e-5)
    program.release()


@pytest.mark.parametrize("equation", EQUATIONS)
def test_products_over_axes_that_are_never_empty(equation: str) -> None:
    names = {"b": torch.export.Dim("batch", min=1), "s": torch.export.Dim("seq", min=1)}
    names["t"] = names["s"]
    shapes = [
        {place: names[one] for place, one in enumerate(part) if one in names}
        for part in equation.partition("->")[0].split(",")
    ]
    module = Product(equation).eval()
    program = export(module, tensors(equation, 3, 5), dynamic_shapes=tuple(shapes))
    assert [node.op_type for node in program.model.graph] == ["Einsum"]
    for batch, length in ((3, 5), (1, 1), (1, 4), (2, 1)):
        given = tensors(equation, batch, length)
        assert_same(program(*given), eager(module, given))
    program.release()


@pytest.mark.parametrize(("lowest", "count"), [((0, 0), 0), ((1, 0), 1), ((1, 1), 2)])
def test_sizes_computed_from_declared_axes(lowest: tuple[int, int], count: int) -> None:
    def over_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        one = torch.cat([x, y])
        other = one[1:]
        return torch.einsum("bi,bj,bk->ijk", one, one, one) + torch.einsum("bi,bj,bk->ijk", other, other, other)

    n, m = lowest
    shapes = {0: torch.export.Dim("n", min=n)}, {0: torch.export.Dim("m", min=m)}
    program = export(over_rows, (torch.randn(3, 4), torch.randn(2, 4)), dynamic_shapes=shapes)
    assert [node.op_type for node in program.model.graph].count("Einsum") == count
    for rows in ((3, 2), (max(n, 1), m), (2, 1)):
        given = torch.randn(rows[0], 4), torch.randn(rows[1], 4)
        torch.testing.assert_close(program(*given)[0], over_rows(*given), atol=1e-5, rtol=1e-5)
    program.release()


@pytest.mark.parametrize("equation", ["sbh,hnd->sbnd", "bnst,tbnd->sbnd"])
def test_fixed_sizes_leave_it_one_operator(equation: str) -> None:
    module, given = Product(equation).eval(), tensors(equation, 3, 5)
    program = export(module, given)
    assert [node.op_type for node in program.model.graph] == ["Einsum"]
    assert_same(program(*given), eager(module, given))
    program.release()


REPEATED = {
    "bij,bjk->bik": ((1, 2, 3), (2, 3, 4)),
    "bjk,bij->bik": ((2, 3, 4), (1, 2, 3)),
    "ij,jk->ik": ((2, 1), (3, 4)),
    "...ij,...jk->...ik": ((1, 2, 3), (2, 3, 4)),
}


@pytest.mark.parametrize("equation", REPEATED)
def test_a_name_that_is_1_in_one_factor_is_repeated_for_the_other(equation: str, tmp_path: Path) -> None:
    module, given = Product(equation).eval(), tuple(map(torch.randn, REPEATED[equation]))
    program = export(module, given)
    program.save(tmp_path / "product.onnx")
    onnx.checker.check_model(tmp_path / "product.onnx", full_check=True)
    assert_same(program(*given), eager(module, given))
    program.release()


class Gated(torch.nn.Module):
    """Mixes the steps of a sequence by part of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        return torch.einsum("bnd,mn->bmd", x, self.table[:length, :length])


def test_part_of_a_table_is_as_long_as_the_sequence() -> None:
    module = Gated().eval()
    program = export(module, (torch.randn(2, 5, 3),), dynamic_shapes=({0: "batch", 1: "length"},))
    for batch, length in ((2, 5), (1, 1), (3, 2), (2, 8)):
        x = torch.randn(batch, length, 3)
        assert_same(program(x), eager(module, (x,)))
    program.release()


class Function(torch.nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Whatever the function gives."""
        return self.function(*given)


INNER: dict[str, tuple[Callable[..., torch.Tensor], tuple[str, ...], bool]] = {
    "keys of another length": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ("bhnd", "bhmd", "bhmd"), True),
    "keys of the same length": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ("bhnd",) * 3, False),
    "keys and those before": (
        lambda q, p: (q @ torch.cat([p, q], 2).mT).softmax(-1) @ torch.cat([p, q], 2),
        ("bhnd", "bhmd"),
        False,
    ),
    "batches": (torch.bmm, ("hdm", "hmd"), True),
    "with an addend": (lambda a, b: torch.baddbmm(a.new_ones(3, 4, 4), a, b), ("hdm", "hmd"), True),
    "all elements of two axes": (lambda a: a.flatten(2) @ a.flatten(2).mT, ("bhmd",), True),
    "named axes": (lambda a, b: torch.einsum("bmd,bme->bde", a, b), ("bmd", "bmd"), True),
    "one matrix": (lambda a, b: a[0] @ b[0], ("hdm", "hmd"), False),
}


@pytest.mark.parametrize("name", INNER)
def test_several_matrices_over_an_inner_axis_without_elements_are_zeros(name: str) -> None:
    function, names, is_chosen = INNER[name]
    sizes = {"b": 2, "h": 3, "n": 5, "m": 6, "d": 4}
    free = {"b": "b", "n": "n", "m": "m"}
    example = tuple(torch.randn([sizes[axis] for axis in one]) for one in names)
    shapes = tuple({place: free[axis] for place, axis in enumerate(one) if axis in free} for one in names)
    program = export(Function(function), example, dynamic_shapes=(shapes,))
    assert ("Where" in {node.op_type for node in program.model.graph}) == is_chosen
    for size in (0, 6):
        given = tuple(torch.randn([size if axis == "m" else sizes[axis] for axis in one]) for one in names)
        for _ in range(3):
            torch.testing.assert_close(program(*given)[0], function(*given), rtol=1e-4, atol=1e-5)


SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inner of vectors": lambda x: torch.inner(x[1:, 0] * 2, x[1:, 0]),
    "inner of matrices": lambda x: torch.inner(x[1:].mT, x[1:, 0]),
    "tensordot": lambda x: torch.tensordot(x[1:], x[1:], dims=([0], [0])),
    "tensordot of no axis": lambda x: torch.tensordot(x[1:], x[1:], dims=0),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_products_whose_axis_is_1_in_the_example_is_one_of_all(name: str) -> None:
    """torch makes another product of an axis of 1, and a capture with it there would hold for that size only."""

    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return SUMS[name](x)

    module = Sum().eval()
    program = export(module, (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))
    for count in (1, 2, 3, 6):
        given = torch.randn(count, 3)
        assert_same(program(given), eager(module, (given,)))
    program.release()


def test_a_decomposition_that_takes_the_examples_way_is_refused() -> None:
    """Of three factors torch asks whether an axis is 1, which the capture has asked already."""

    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("i,i,ij->j", x[1:, 0], x[1:, 1], x[1:])

    with pytest.raises(DecompositionError, match="holds for one size only"):
        export(Sum().eval(), (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))
    program = export(Sum().eval(), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))
    for count in (3, 5):
        given = torch.randn(count, 3)
        assert_same(program(given), eager(Sum().eval(), (given,)))
    program.release()


def test_a_decomposition_that_goes_one_way_at_every_length_is_taken() -> None:
    """As state spaces sum over parts of a length, which is padded to whole ones."""

    class Parts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.nn.functional.pad(x, (0, 0, 0, (4 - x.shape[1] % 4) % 4))
            parts = x.unflatten(1, (-1, 4)).sum(2)
            states = torch.cat([torch.zeros_like(parts[:, :1]), parts], 1)
            weights = torch.nn.functional.pad(parts.mean(-1), (1, 0))
            return torch.einsum("bm,bmd->bd", weights, states), torch.einsum("bme,bmd->bed", weights[..., None], states)

    program = export(Parts(), (torch.randn(2, 9, 3),), dynamic_shapes={"x": {0: "b", 1: "n"}})
    for b, n in ((2, 9), (1, 1), (3, 4), (2, 20)):
        x = torch.randn(b, n, 3)
        assert_same(program(x), Parts()(x))
