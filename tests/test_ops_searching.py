"""Edges and values that are searched for: eager's halving also ends somewhere where a NaN stands among the edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_ops_special_values import Calls

from batch_export.exporter import export

INF, NAN = float("inf"), float("nan")
VALUES = torch.tensor([0.5, 2.0, NAN, -1.0, INF, -INF, 0.0, 1.0, 3.0])
Search = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SEARCHES: dict[str, Search] = {
    "left": torch.searchsorted,
    "right": lambda edges, values: torch.searchsorted(edges, values, right=True, out_int32=True),
    "side": lambda edges, values: torch.searchsorted(edges, values, side="right"),
    "sorter": lambda edges, values: torch.searchsorted(edges.flip(0), values, sorter=edges.argsort().flip(0)),
    "buckets": lambda edges, values: torch.bucketize(values.reshape(3, 3), edges, right=True),
    "a number": lambda edges, values: torch.searchsorted(edges, 1.0),
}


def rows(length: int) -> list[torch.Tensor]:
    """Ascending edges with any number of NaN at their end."""
    numbers = torch.arange(length).div(3.0, rounding_mode="floor")
    return [torch.cat([numbers[: length - lost], torch.full((lost,), NAN)]) for lost in range(length + 1)]


def test_edges_of_a_free_number_with_nan_behind_them() -> None:
    searches = {name: search for name, search in SEARCHES.items() if name != "sorter"}
    program = export(Calls(searches), (rows(4)[0], VALUES), dynamic_shapes=(({0: "edges"}, None),))
    for edges in (one for length in (0, 1, 2, 3, 4, 7, 8, 13, 16) for one in rows(length)):
        for name, found, search in zip(searches, program(edges, VALUES), searches.values(), strict=True):
            torch.testing.assert_close(found, search(edges, VALUES), msg=f"{name} of {edges}")
    program.release()


@pytest.mark.parametrize("length", [1, 4, 6])
def test_edges_of_a_fixed_number_with_nan_behind_them(length: int) -> None:
    program = export(Calls(SEARCHES), (rows(length)[0], VALUES))
    for edges in rows(length):
        for name, found, search in zip(SEARCHES, program(edges, VALUES), SEARCHES.values(), strict=True):
            torch.testing.assert_close(found, search(edges, VALUES), msg=f"{name} of {edges}")
    program.release()


def test_rows_of_edges_each_have_their_own_nan() -> None:
    edges, values = torch.stack(rows(5)), VALUES.expand(6, -1).contiguous()
    program = export(
        Calls({"rows": torch.searchsorted}), (edges, values), dynamic_shapes=(({0: "n", 1: "m"}, {0: "n"}),)
    )
    torch.testing.assert_close(program(edges, values)[0], torch.searchsorted(edges, values))
    program.release()
