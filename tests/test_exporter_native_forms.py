"""`prefer_native`: operators that newer opsets have whole, where a runtime's kernel gives what torch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.nn import functional

from batch_export import export
from batch_export.errors import TranslationError
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def heads(query: int = 4, length: int = 5, keys: int = 5, dtype: torch.dtype = torch.float32, batch: int = 2) -> Any:
    torch.manual_seed(0)
    q = torch.randn(batch, 4, length, 8, dtype=dtype)
    k, v = (torch.randn(batch, query, keys, 8, dtype=dtype) for _ in range(2))
    return q, k, v


def types(program: Any) -> set[str]:
    return {node.op_type for node in program.model.graph.all_nodes()}


MASK = torch.ones(5, 7, dtype=torch.bool).tril(1)
EXCLUDED = torch.cat([MASK[:3], torch.zeros(2, 7, dtype=torch.bool)])

NATIVE: dict[str, tuple[Callable[[], torch.nn.Module], tuple[torch.Tensor, ...], int, str]] = {
    "rms norm": (lambda: torch.nn.RMSNorm(8), (torch.randn(2, 3, 8),), 23, "RMSNormalization"),
    "rms norm over two axes, no scale": (
        lambda: torch.nn.RMSNorm((3, 8), eps=1e-6, elementwise_affine=False),
        (torch.randn(2, 3, 8),),
        23,
        "RMSNormalization",
    ),
    "rms norm of doubles": (
        lambda: torch.nn.RMSNorm(8, dtype=torch.float64),
        (torch.randn(2, 8, dtype=torch.float64),),
        23,
        "RMSNormalization",
    ),
    "attention": (Attention, heads(keys=7), 23, "Attention"),
    "causal": (lambda: Attention(is_causal=True), heads(), 24, "Attention"),
    "causal, more keys": (lambda: Attention(is_causal=True), heads(keys=7), 23, "Attention"),
    "scaled": (lambda: Attention(scale=0.3), heads(), 23, "Attention"),
    "shared heads": (lambda: Attention(enable_gqa=True), heads(query=2), 25, "Attention"),
    "half": (Attention, heads(dtype=torch.float16), 23, "Attention"),
    "mask": (Attention, (*heads(keys=7), MASK), 23, "Attention"),
    "mask of a batch": (Attention, (*heads(keys=7), MASK.expand(2, 1, 5, 7)), 23, "Attention"),
    "mask that excludes rows": (Attention, (*heads(keys=7), EXCLUDED), 23, "Attention"),
}


@pytest.mark.parametrize("case", NATIVE)
def test_native_where_the_kernel_gives_what_torch_gives(case: str) -> None:
    module, args, opset, operator = NATIVE[case]
    tolerance = 1e-9 if args[0].dtype == torch.float64 else 5e-3 if args[0].dtype == torch.float16 else 1e-4
    program = export_and_compare(module(), args, opset_version=opset, tolerance=tolerance)
    assert operator in types(program)
    (node,) = [node for node in program.model.graph if node.op_type == operator]
    assert len(node.outputs) == 1
    schema = onnx.defs.get_schema(operator, opset)
    defaults = {
        name: ir.from_proto(one.default_value).value
        for name, one in schema.attributes.items()
        if one.default_value.name
    }
    assert not [name for name, given in node.attributes.items() if given.value == defaults.get(name)]
    assert operator not in types(export(module().eval(), args, opset_version=opset, prefer_native="never"))


DECOMPOSED: dict[str, tuple[Callable[[], torch.nn.Module], tuple[torch.Tensor, ...], Any]] = {
    "an empty batch": (Attention, heads(), ({0: "batch"}, {0: "batch"}, {0: "batch"}, None)),
    "groups of an empty batch": (lambda: torch.nn.GroupNorm(2, 4), (torch.randn(2, 4, 3),), ({0: "batch"},)),
    "groups that hardly vary": (lambda: torch.nn.GroupNorm(2, 4), (3 + 1e-3 * torch.randn(2, 4, 3, 5),), None),
    "groups without a scale": (
        lambda: torch.nn.GroupNorm(2, 4, eps=1e-3, affine=False),
        (1e-2 * torch.randn(2, 4, 6) - 2,),
        None,
    ),
    "rows of a mask repeated": (Attention, (*heads(keys=7), MASK[-1:].expand(2, 1, 1, 7)), None),
    "a mask of very small numbers": (
        Attention,
        (*heads(keys=7), torch.zeros(5, 7).masked_fill(~EXCLUDED, torch.finfo(torch.float32).min)),
        None,
    ),
    "doubles and a root that float32 rounds": (Attention, heads(dtype=torch.float64), None),
    "a mask of doubles": (Attention, (*heads(keys=7, dtype=torch.float64), EXCLUDED), None),
}


@pytest.mark.parametrize("case", DECOMPOSED)
def test_decomposed_where_the_kernel_is_known_to_fail(case: str) -> None:
    module, args, shapes = DECOMPOSED[case]
    shapes = shapes if shapes is None else shapes[: len(args)]
    more = [tuple(one[:0] for one in args)] if shapes else []
    program = export_and_compare(module(), args, *more, dynamic_shapes=shapes, opset_version=23)
    assert not types(program) & {"Attention", "GroupNormalization"}
    always = export(module().eval(), args, dynamic_shapes=shapes, opset_version=23, prefer_native="always")
    assert types(always) & {"Attention", "GroupNormalization"}


@pytest.mark.parametrize(("affine", "eps", "written"), [(True, 1e-5, []), (False, 1e-3, ["epsilon"])])
def test_group_normalisation_is_onnx_own_where_it_is_asked_for(affine: bool, eps: float, written: list[str]) -> None:
    module = torch.nn.GroupNorm(2, 4, eps=eps, affine=affine)
    args = (torch.randn(2, 4, 3, 5),)
    program = export_and_compare(module, args, opset_version=21, prefer_native="always")
    (node,) = [node for node in program.model.graph if node.op_type == "GroupNormalization"]
    assert sorted(node.attributes) == [*written, "num_groups"]


def test_operators_named_by_the_model_follow_never() -> None:
    class Named(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return torch.onnx.ops.attention(q, k, v, scale=0.5)[0]

    program = export_and_compare(Named(), heads(), opset_version=23)
    (node,) = program.model.graph
    assert (node.op_type, list(node.attributes)) == ("Attention", ["scale"])
    decomposed = export_and_compare(Named(), heads(), opset_version=23, prefer_native="never")
    assert "Attention" not in types(decomposed)


def test_always_says_where_it_cannot_be() -> None:
    with pytest.raises(
        TranslationError,
        match=r"ONNX's Attention, which prefer_native='always' asks for, does not exist at opset 20 .*23",
    ):
        export(Attention(), heads(), opset_version=20, prefer_native="always")
    with pytest.raises(TranslationError, match=r"cannot be written as ONNX's Attention.*drops no weights"):
        export(Attention(dropout_p=0.5), heads(), opset_version=23, prefer_native="always")
    with pytest.raises(ValueError, match="prefer_native='yes': choose auto, always, never"):
        export(Attention(), heads(), prefer_native="yes")


class Cache(torch.nn.Module):
    """A cache of fixed length that is written to at the places that `where` gives."""

    def __init__(self, where: Callable[[int, torch.Tensor], torch.Tensor], axis: int = 2) -> None:
        super().__init__()
        self.where, self.axis = where, axis
        self.register_buffer("cache", torch.arange(2 * 8 * 8 * 4, dtype=torch.float32).reshape(2, 8, 8, 4))

    def forward(self, new: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(self.axis, self.where(new.shape[self.axis], start), new)
        return self.cache * 2


def counted(length: int, start: torch.Tensor) -> torch.Tensor:
    return torch.arange(length) + start


WRITES: dict[str, tuple[Callable[[int, torch.Tensor], torch.Tensor], int, bool]] = {
    "counted on": (counted, 2, True),
    "counted on, another axis": (counted, 1, True),
    "counted from a number": (lambda length, start: start + torch.arange(3, 3 + length), 2, True),
    "from the beginning": (lambda length, start: torch.arange(length), 2, True),
    "a range": (lambda length, start: torch.arange(2, 2 + length), 2, True),
    "every other one": (lambda length, start: torch.arange(length) * 2 + start, 2, False),
    "one for each": (lambda length, start: torch.arange(length) + start * torch.arange(length), 2, False),
}


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_of_consecutive_places_are_one_operator(name: str, free: bool) -> None:
    where, axis, fits = WRITES[name]
    sizes = [2, 8, 8, 4]
    sizes[axis] = 3
    new, start = torch.randn(sizes), torch.tensor(2)
    others: list[tuple[torch.Tensor, torch.Tensor]] = [(new, torch.tensor(0))]
    dynamic = None
    if free:
        dynamic = {"new": {axis: torch.export.Dim("length", min=1, max=4)}, "start": {}}
        sizes[axis] = 1
        others.append((torch.randn(sizes), torch.tensor(1)))
    for opset in (24, 27):
        program = export_and_compare(
            Cache(where, axis), (new, start), *others, opset_version=opset, dynamic_shapes=dynamic
        )
        assert ("TensorScatter" in types(program), "ScatterND" in types(program)) == (fits, not fits)
    left = {"Transpose", "Range", "Unsqueeze"} if fits else set()
    assert not left & types(program), "what the write was spelt out with is left behind"
    for opset, preference in ((23, "auto"), (24, "never")):
        spelt = export(
            Cache(where, axis), (new, start), opset_version=opset, dynamic_shapes=dynamic, prefer_native=preference
        )
        assert "TensorScatter" not in types(spelt)
