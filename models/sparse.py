"""Models of lookups and scatters: a recommender and a graph network. Plain numbers arrive, seeded modules leave."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn


class Recommender(nn.Module):
    """Dense features and bags of category ids, joined by all pairwise products (arXiv:1906.00091)."""

    pairs: Tensor

    def __init__(self, dense: int, categories: int, tables: int, width: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(categories, width, mode="sum") for _ in range(tables))
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, offset=1), persistent=False)
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, ids: list[Tensor]) -> Tensor:
        """Maps `float32[batch, dense]` and a list of `int64[batch, bag]` to click probabilities `float32[batch]`."""
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom, *(bag(chosen) for bag, chosen in zip(self.bags, ids, strict=True))], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([bottom, products], dim=1))).squeeze(-1)


class GraphConv(nn.Module):
    """Averages messages over incoming edges (`index_add`), then mixes them with the node's own features."""

    def __init__(self, given: int, wanted: int) -> None:
        super().__init__()
        self.message = nn.Linear(given, wanted)
        self.own = nn.Linear(given, wanted)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Maps `float32[nodes, given]` and edges `int64[edges]` twice to `float32[nodes, wanted]`."""
        sent = self.message(nodes).index_select(0, source)
        received = torch.zeros_like(self.own(nodes)).index_add(0, target, sent)
        degree = torch.zeros_like(nodes[:, 0]).scatter_add(0, target, torch.ones_like(target, dtype=nodes.dtype))
        return torch.relu(self.own(nodes) + received / degree.clamp(min=1.0)[:, None])


class GraphNet(nn.Module):
    """Two graph convolutions, the greatest feature over all nodes, and a classifier."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GraphConv(width, hidden)
        self.second = GraphConv(hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `float32[nodes, width]` and edges to `float32[nodes, hidden]` and the graph's `float32[classes]`."""
        hidden = self.second(self.first(nodes, source, target), source, target)
        return hidden, self.head(hidden.amax(dim=0))


def recommender(dense: int = 8, categories: int = 100, tables: int = 3, width: int = 8) -> nn.Module:
    """Builds `Recommender`."""
    return Recommender(dense, categories, tables, width)


def graph_net(width: int = 8, hidden: int = 16, classes: int = 4) -> nn.Module:
    """Builds `GraphNet`."""
    return GraphNet(width, hidden, classes)
