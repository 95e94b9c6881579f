"""Node-local decomposition: runs an operator's decomposition on its fake inputs and hands on what it is made of.

Arrives: one operator without a translation, with fake tensors and symbolic sizes as arguments. Leaves: calls of a
`translate` callback for every operator with a translation that the decomposition reaches, in order, so that nothing is
traced into a graph of its own and nothing but this node is touched. In-place operators inside a decomposition rebind
the tensor they change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from batch_export.errors import DecompositionError, MissingOperatorError
from batch_export.exporter.graph import metadata
from batch_export.exporter.translate import copied_places, fourier_lengths, truth_sums
from batch_export.exporter.translate.free_sizes import sizes_stay_free

Decomposition = Callable[..., object]


@functools.cache
def decompositions() -> Mapping[Any, Decomposition]:
    """torch's decompositions: those that torch.export uses by default, then every other one that torch has."""
    table: dict[Any, Decomposition] = dict(torch.export.default_decompositions().items())
    for target, function in torch._decomp.decomposition_table.items():
        table.setdefault(target, function)
    table.update(torch.onnx.ops.aten_decompositions())
    table.update(fourier_lengths.decompositions())
    table.update(truth_sums.decompositions())
    table.update(copied_places.decompositions())
    return table


def decomposition_of(target: object) -> Decomposition | None:
    """How torch decomposes an operator, or None."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _composition(target.name())
    if not isinstance(target, torch._ops.OpOverload):
        return None
    known = decompositions().get(target)
    if known is not None:
        return known
    if target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return target.decompose
    return None


def _composition(name: str) -> Decomposition | None:
    """What eager runs for a higher-order operator whose functions say what one number of the result is."""
    if name != "flex_attention":
        return None
    from torch._higher_order_ops.flex_attention import math_attention  # lazy: only who uses it pays for it

    return math_attention


@functools.cache
def _required(target: object) -> Decomposition:
    found = decomposition_of(target)
    if found is None:
        name = metadata.target_name(target)
        raise MissingOperatorError(
            f"{name} has no ONNX translation and no decomposition",
            operators=(name,),
            operator=name,
            next_step="pass custom_translation_table={torch.ops...: function}, or rewrite that part of the model",
        )
    return found


def _covered(target: object, result: object) -> object:
    """What a decomposition gave, which some refuse to for some arguments."""
    if result is NotImplemented:
        name = metadata.target_name(target)
        raise MissingOperatorError(
            f"torch's decomposition of {name} does not cover this call",
            operators=(name,),
            operator=name,
            next_step="pass custom_translation_table={torch.ops...: function}",
        )
    return result


def functional_variant(target: object) -> Any | None:
    """`aten.add.Tensor` for `aten.add_.Tensor`: the operator that takes the same arguments; None when torch has none.

    Its overload may have another name (`pow.Tensor_Scalar` for `pow_.Scalar`, where `pow.Scalar` is another operator).
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    namespace, _, name = target._schema.name.partition("::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    taken = _argument_types(target)
    overloads = [] if packet is None else sorted(packet.overloads(), key=lambda found: found != target._overloadname)
    return next((one for found in overloads if _argument_types(one := getattr(packet, found)) == taken), None)


def variant_with_contents(target: object) -> Any | None:
    """`aten.rrelu_with_noise_functional` for `aten.rrelu_with_noise`: it gives the results, then the new contents."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    namespace, _, name = target._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_functional", None)
    found = getattr(packet, target._overloadname, None)
    results = len(target._schema.returns) + len(mutated_arguments(target))
    if found is None or len(found._schema.returns) != results:
        return None
    return found if _argument_types(found) == _argument_types(target) else None


def _argument_types(target: Any) -> list[str]:
    return [str(argument.type) for argument in target._schema.arguments]


def mutated_arguments(target: object) -> tuple[int, ...]:
    """Positions of the arguments that an operator writes to."""
    if not isinstance(target, torch._ops.OpOverload):
        return ()
    return tuple(
        index
        for index, argument in enumerate(target._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


class Translate(Protocol):
    """Translates one operator whose arguments are fake; the result is stored under the fake output."""

    def __call__(
        self, target: object, args: Sequence[object], kwargs: Mapping[str, object], output: object, /
    ) -> None: ...


class DecompositionMode(TorchDispatchMode):
    """Walks through a decomposition while it runs.

    Args:
        is_translatable: whether an operator with these arguments has a translation.
        translate: called for each operator that has one.
        rebind: called with a fake tensor that an in-place operator changed and the fake tensor with its new content.
    """

    def __init__(
        self,
        is_translatable: Callable[[object, Sequence[object], Mapping[str, object]], bool],
        translate: Translate,
        rebind: Callable[[torch.Tensor, torch.Tensor], None],
        path: tuple[str, ...],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_translatable = is_translatable
        self._translate = translate
        self._rebind = rebind
        self._path = path

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Called by torch for every operator that the decomposition runs."""
        kwargs = kwargs or {}
        if str(func) in self._path:
            raise DecompositionError(f"{func} decomposes into itself", operator=str(func))
        if self._is_translatable(func, args, kwargs):
            known = fourier_lengths.result_of(func, args)
            output = func(*args, **kwargs) if known is None else known
            self._translate(func, args, kwargs, output)
            return output
        written = mutated_arguments(func)
        if written:
            with_contents = variant_with_contents(func)
            if with_contents is not None:
                return self._with_contents(func, with_contents, written, args, kwargs)
            functional = functional_variant(func)
            if functional is None or written != (0,):
                raise self._not_followed(f"{func}, which changes its arguments and has no functional form")
            self._require_whole(args[0])
            with self:
                result = functional(*args, **kwargs)
            if torch.Tag.inplace_view in func.tags:  # `squeeze_`: the tensor itself has other axes from here on
                func(*args, **kwargs)
            self._rebind(args[0], result)
            return args[0]
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(func(*args, **kwargs))):
            return func(*args, **kwargs)  # sizes and checks: nothing to record
        decomposition = _required(func)
        nested = DecompositionMode(self._is_translatable, self._translate, self._rebind, (*self._path, str(func)))
        with nested:
            return _covered(func, decomposition(*args, **kwargs))

    def _with_contents(
        self, func: Any, variant: Any, written: Sequence[int], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> object:
        """Runs the variant that gives the new contents, too, which are the arguments' from here on."""
        places = [place for place in written if place < len(args)]
        if len(places) != len(written):
            raise self._not_followed(f"{func}, which changes arguments that it is given by name")
        for place in places:
            self._require_whole(args[place])
        with self:
            made = tuple(variant(*args, **kwargs))
        results, contents = made[: -len(places)], made[-len(places) :]
        for place, content in zip(places, contents, strict=True):
            self._rebind(args[place], content)
        return results[0] if len(results) == 1 else results

    def _require_whole(self, written: torch.Tensor) -> None:
        if written._is_view():  # what it is a view of would keep its old content
            raise self._not_followed("writes to views")

    def _not_followed(self, into: str) -> DecompositionError:
        """Names the operator of the exported program, which a translation may be given for."""
        return DecompositionError(
            f"{self._path[-1]} decomposes into {into}",
            operator=self._path[-1],
            next_step=f"pass custom_translation_table={{torch.ops.{self._path[0]}: function}}, or rewrite that part of "
            "the model",
        )


def _plain_lists(argument: object) -> object:
    """FX's lists refuse changes, which some of torch's decompositions make to their own arguments."""
    return [_plain_lists(item) for item in argument] if isinstance(argument, list) else argument


def run_decomposition(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    fake_mode: FakeTensorMode,
    is_translatable: Callable[[Any, Sequence[Any], Mapping[str, Any]], bool],
    translate: Translate,
    rebind: Callable[[torch.Tensor, torch.Tensor], None],
) -> object:
    """Runs the decomposition of `target` and returns its fake result.

    Raises:
        MissingOperatorError: if the operator, or one that it is made of, has neither translation nor decomposition.
        DecompositionError: if the decomposition cannot be followed.
    """
    name = metadata.target_name(target)
    decomposition = _required(target)
    mode = DecompositionMode(is_translatable, translate, rebind, (name,))
    given = str(pytree.tree_map_only(torch.Tensor, lambda one: (one.shape, one.dtype), (list(args), dict(kwargs))))
    with sizes_stay_free(getattr(fake_mode, "shape_env", None), target, given), torch.no_grad(), fake_mode, mode:
        result = decomposition(*(_plain_lists(argument) for argument in args), **kwargs)
    return _covered(target, result)
