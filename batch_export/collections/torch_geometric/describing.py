"""A class of torch_geometric's models as a configuration: few narrow layers, and a small graph with free axes.

Runs in a child. Nodes and edges are axes; every edge is between the nodes that the smallest graph has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from batch_export.collections.small_models.classes import Classes, describe, import_first
from batch_export.collections.small_models.leaves import Leaf
from batch_export.collections.small_models.signatures import Option

_NODES = 8
_FEWEST = 5
"""Nodes of the smallest graph that is checked."""
_WIDTH = 16
_EDGE = 4

ARGUMENTS: dict[str, Any] = {
    "in_channels": _WIDTH,
    "hidden_channels": _WIDTH,
    "out_channels": 8,
    "num_layers": 2,
    "num_classes": 4,
    "num_nodes": _NODES,
    "num_blocks": 2,
    "num_rels": 4,
    "num_spherical": 3,
    "num_radial": 4,
    "num_bilinear": 4,
    "num_timesteps": 2,
    "num_heads": 2,
    "int_emb_size": 8,
    "basis_emb_size": 4,
    "out_emb_channels": _WIDTH,
    "embedding_dim": _WIDTH,
    "hidden_node_channels": _WIDTH,
    "hidden_edge_channels": _WIDTH,
    "dim_emb": _WIDTH,
    "dim_pe_in": _WIDTH,
    "dim_pe_out": 8,
    "edge_dim": _EDGE,
    "depth": 2,
    "alpha": 0.5,
    "mode": "max",
}
"""By the name of a parameter of `__init__`."""


def options(model: nn.Module, arguments: Mapping[str, Any], name: str) -> Sequence[Option]:
    """Returns what a parameter of forward may be given."""
    width = next((arguments[one] for one in ("in_channels", "embedding_dim") if _counts(arguments.get(one))), _WIDTH)
    edges = Leaf("int64", (2, "edges"), 0, _FEWEST)
    per_edge = next((arguments[one] for one in ("edge_dim", "num_gaussians") if _counts(arguments.get(one))), _EDGE)
    known: dict[str, Sequence[Option]] = {
        "x": [Leaf("float32", ("nodes", width)), Leaf("int64", ("nodes",), 0, 4)],
        "edge_index": [edges],
        "pos_edge_index": [edges],
        "neg_edge_index": [Leaf("int64", (2, "others"), 0, _FEWEST)],
        "edge_label_index": [Leaf("int64", (2, "others"), 0, _FEWEST)],
        "edge_weight": [Leaf("float32", ("edges",))],
        "edge_attr": [Leaf("float32", ("edges", per_edge))],
        "batch": [Leaf("int64", ("nodes",), fill=0)],
        "z": [Leaf("int64", ("nodes",), 1, 10), Leaf("float32", ("nodes", width))],
        "pos": [Leaf("float32", ("nodes", 3))],
        "pos_enc": [Leaf("float32", ("nodes", width))],
        "mask": [Leaf("bool", ("nodes",), fill=1)],
        "y": [Leaf("int64", ("nodes",), 0, 4)],
        "summary": [Leaf("float32", (width,))],
    }
    return known.get(name, ())


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


GRAPHS = Classes(
    library="torch_geometric",
    module="torch_geometric.nn.models",
    arguments=({"act": "relu", **ARGUMENTS},),
    options=options,
    overriding=("in_channels", "hidden_channels", "out_channels", "num_layers", "num_heads"),
    sizes={"nodes": _NODES, "edges": 14, "others": 10},
)


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its name in the collection; raises as `classes.describe` does."""
    return describe(GRAPHS, name)


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    import_first(GRAPHS)
