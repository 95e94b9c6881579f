"""Views of free sizes are not remembered by torch's fake tensors, and all else is."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from batch_export.exporter.capture.uncached_views import uncached_views

SAID = "a view of free sizes"


def test_views_of_free_sizes_alone_are_not_remembered() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    free, fixed = (
        mode.from_tensor(torch.ones(5, 4), symbolic_context=context),
        mode.from_tensor(torch.ones(5, 4), static_shapes=True),
    )
    before = FakeTensorMode.cache_bypasses[SAID]
    with uncached_views(), mode:
        assert (fixed.view(4, 5).shape, (free + 1).dim()) == ((4, 5), 2)
        assert FakeTensorMode.cache_bypasses[SAID] == before
        assert free.view(-1).dim() == 1
    within = FakeTensorMode.cache_bypasses[SAID]
    assert within > before
    with mode:
        assert free.view(-1).dim() == 1
    assert FakeTensorMode.cache_bypasses[SAID] == within
