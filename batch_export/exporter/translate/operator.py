"""One operator at a time: torch operators, with values as arguments, into ONNX nodes.

Arrives: an operator's target and its arguments as ONNX values and plain Python objects, with the fake tensors that
torch computed for them. Leaves: ONNX values that carry dtype, shape and name. Operators without a translation are
decomposed (`decompose.py`). Nothing here walks a graph; that is `walk.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree

from batch_export.errors import DecompositionError, TranslationError
from batch_export.exporter.graph import complex_parts, promote, torch_tensors
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import give_name, is_unnamed, let_name_go
from batch_export.exporter.graph.recorder import Recorder
from batch_export.exporter.graph.sizes import Sizes
from batch_export.exporter.ops import double_forms, tensors
from batch_export.exporter.translate import adapting, decompose, memory_layout, of_numbers, own_parts, symbolic_scalars
from batch_export.exporter.translate.call import Call, given_fakes
from batch_export.exporter.translate.registry import OnnxRegistry, qualified_name

IGNORED_NAMES = frozenset(
    {
        "aten::_assert_async",
        "aten::_assert_async.msg",
        "aten::_assert_scalar",
        "aten::_assert_tensor_metadata",
        "aten::_linalg_check_errors",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
        "torch._C::_set_grad_enabled",
        "torch.amp.autocast_mode::_exit_autocast",
    }
)
"""Operators that check or switch something in torch and compute nothing."""

_KINDS: Mapping[type, ir.DataType] = {
    torch.SymInt: ir.DataType.INT64,
    torch.SymFloat: ir.DataType.DOUBLE,
    torch.SymBool: ir.DataType.BOOL,
}
_SPLITS = frozenset(
    ["split", "chunk", "split_with_sizes", "tensor_split", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"]
)


class OperatorTranslator:
    """Translates operators of one exported program.

    Args:
        program: the program, read for its fake mode and by those who walk it.
        registry: which function translates which operator.
        axis_names: torch's symbol -> axis name.
        lowest: torch's symbol -> the least size that was declared for the axis.
        fold: compute small constant expressions at once.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        registry: OnnxRegistry,
        axis_names: Mapping[str, str],
        *,
        lowest: Mapping[str, int],
        fold: bool,
    ) -> None:
        self.program = program
        self.registry = registry
        self.recorder = Recorder(fold=fold, double_forms=double_forms.FORMS)
        self.sizes = Sizes(self.recorder, axis_names, lowest)
        self.operators: dict[str, tuple[int, str]] = {}
        self._fake_mode: FakeTensorMode | None = detect_fake_mode(
            [node.meta.get("val") for node in program.graph.nodes]
        )

    # Values -----------------------------------------------------------------------------------------------------------

    def describe(self, value: ir.Value, fake: object) -> None:
        """Writes a fake tensor's dtype and shape onto an ONNX value."""
        if isinstance(fake, torch.Tensor):
            dtype = torch_tensors.data_type(fake.dtype)
            shape = self.sizes.shape(torch_tensors.sizes_of(fake.dtype, fake.shape))
            if fake.is_complex():
                dtype = ir.DataType.DOUBLE if fake.dtype == torch.complex128 else ir.DataType.FLOAT
                shape = ir.Shape([*shape.dims, 2])
                complex_parts.mark(value)
            value.type = ir.TensorType(dtype)
            value.shape = shape
            self.sizes.learn(value, fake.shape)
        elif isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            value.type = ir.TensorType(_KINDS[type(fake)])
            value.shape = ir.Shape([])
            self.sizes.learn_scalar(fake, value)

    def conform(self, result: Any, fake: Any, name: str) -> object:
        """Holds a result against what torch computed: dtype cast where needed, shape and name written."""
        if isinstance(fake, (tuple, list)):
            if isinstance(result, ir.Value):
                if not isinstance(result.type, ir.SequenceType) and len(fake) == 1:
                    return [self.conform(result, fake[0], name)]
                return result  # an ONNX sequence
            pairs = zip(result, fake, strict=False)
            return [self.conform(one, of, f"{name}_{index}") for index, (one, of) in enumerate(pairs)]
        if isinstance(result, (list, tuple)) and len(result) >= 1 and not isinstance(fake, (list, tuple)):
            return self.conform(result[0], fake, name)
        if not isinstance(result, ir.Value):
            if isinstance(fake, torch.Tensor):
                result = self.recorder.constant(result, torch_tensors.data_type(fake.dtype))
            return result
        result = self.recorder.as_rounded(result)
        if isinstance(fake, torch.Tensor) and not fake.is_complex():
            expected = torch_tensors.data_type(fake.dtype)
            if result.dtype is not None and result.dtype != expected and not isinstance(result.type, ir.SequenceType):
                result = op.Cast(result, to=expected)
        elif type(fake) in _KINDS and result.dtype not in (None, _KINDS[type(fake)]):
            result = op.Cast(result, to=_KINDS[type(fake)])
        if not isinstance(result.type, ir.SequenceType):
            if isinstance(fake, torch.Tensor) and fake.is_complex() != complex_parts.is_pair(result):
                result = self._seen_as(result, fake)
            fresh = is_unnamed(result)
            if fresh or result.shape is None:
                self.describe(result, fake)
            elif isinstance(fake, torch.Tensor):
                self.sizes.learn(result, fake.shape)
            elif isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self.sizes.learn_scalar(fake, result)
            if fresh:
                give_name(result, self.recorder.unique_name(name))
        return result

    def _seen_as(self, result: Any, fake: torch.Tensor) -> object:
        """A result as pairs, or no longer as such; a value with another name when it is one that is there already."""
        if not is_unnamed(result):
            given, result = result, self.recorder.value(result.dtype)
            result.shape = given.shape
            self.recorder.append(ir.Node("", "Identity", [given], outputs=[result]))
        if fake.is_complex():
            complex_parts.mark(result)
        return result

    def convert(self, argument: object, env: Mapping[torch.fx.Node, object]) -> Any:
        """An FX argument as a translation takes it."""
        if isinstance(argument, torch.fx.Node):
            return env[argument]
        if isinstance(argument, (list, tuple)):
            return [self.convert(item, env) for item in argument]
        return self.plain(argument)

    def plain(self, argument: object) -> object:
        """Torch's non-tensor objects as ONNX functions take them."""
        if isinstance(argument, torch.dtype):
            return int(torch_tensors.data_type(argument))
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.sizes.scalar(argument)
        if isinstance(argument, (torch.device, torch.layout)):
            return str(argument)
        if isinstance(argument, torch.memory_format):
            return None
        if isinstance(argument, torch.Tensor):
            return self.tensor_constant(argument)
        return argument

    def tensor_constant(self, tensor: torch.Tensor) -> ir.Value:
        """A real tensor met inside a graph or a decomposition, as an initializer."""
        data = tensor.detach()
        if data.is_complex():
            pairs = self.recorder.initializer(
                "tensor", torch_tensors.tensor_of(torch.view_as_real(data.resolve_conj()))
            )
            complex_parts.mark(pairs)  # not a shared constant: equal real numbers are no pairs
            return pairs
        if data.numel() <= 1024 and data.dtype != torch.bfloat16:
            return self.recorder.constant(data.cpu().contiguous().numpy())
        return self.recorder.initializer("tensor", torch_tensors.tensor_of(data))

    # One operator -----------------------------------------------------------------------------------------------------

    def call(self, call: Call) -> Any:
        """Translates an operator whose arguments are ONNX values and plain numbers; None if it has no translation."""
        if symbolic_scalars.is_plain_quotient(call.qualified, call.args, call.given):
            return self.call(replace(call, target="batch_export::quotient_of_sizes"))
        if not call.is_complex and (any(type(one) is complex for one in call.args) or self._becomes_complex(call)):
            return self.call(call.in_pairs())
        is_complex, qualified, fake = call.is_complex, call.qualified, call.result
        function = self.registry.lookup_for(call.target, call.args, call.kwargs, is_complex=is_complex)
        if function is not None and adapting.is_taken_apart(function, qualified, [call.args, call.kwargs]):
            return None
        if is_complex and function is not None and function.origin == "torchlib":  # which takes the pair for the axis
            function = None if adapting.is_scalar_along_an_axis(call.target, call.args, fake) else function
        base = promote.base_name(qualified)
        if adapting.is_complex(fake) and base in complex_parts.LIKE:
            sizes = [self.plain(size) for size in fake.shape]
            return self.conform(complex_parts.filled_like(base, call.args, sizes, fake), fake, call.name)
        if adapting.is_complex(fake) and base in complex_parts.DRAWN:
            sizes = [self.plain(size) for size in fake.shape]
            return self.conform(complex_parts.drawn(base, sizes, fake), fake, call.name)
        if is_complex and adapting.is_complex(fake) and complex_parts.is_new(base, call.args):
            return self.conform(complex_parts.filled(base, call.args, fake), fake, call.name)
        if function is None:
            return self._by_parts(call) if is_complex else None
        if function.origin != "custom" and adapting.is_empty(fake):
            return self.conform(self._nothing(fake), fake, call.name)
        if not is_complex and adapting.is_complex(fake) and base in complex_parts.FACTORIES:
            return self.conform(complex_parts.filled(base, call.args, fake), fake, call.name)
        arguments = complex_parts.joined_alike(base, call.args, fake) if is_complex else list(call.args)
        kwargs = dict(call.kwargs)
        if not is_complex and function.origin != "custom":
            arguments = promote.promote(qualified, arguments, call.result_dtype)
        if base in memory_layout.READS_MEMORY and call.given and isinstance(call.given[0], torch.Tensor):
            made = fake if base == "as_strided" else None  # a copy has strides of its own
            arguments = memory_layout.in_memory_order([*arguments, *kwargs.values()], call.given[0], made)
            kwargs = {}
        if base in memory_layout.IN_ORDER_ONLY and call.given and isinstance(call.given[0], torch.Tensor):
            memory_layout.require_order(call.given[0], base)
        if base in _SPLITS and isinstance(fake, (list, tuple)):
            axis = kwargs.get("dim", call.args[2] if len(call.args) > 2 else 0)
            assert isinstance(axis, int)
            pieces = [piece.shape[axis] for piece in fake]
            how: Any = arguments[1] if len(arguments) > 1 else None
            by_rule = "split_with_sizes" not in base and (base == "tensor_split" or not isinstance(how, (list, tuple)))
            whole = arguments[0]
            assert isinstance(whole, ir.Value)
            if by_rule and how is not None and not all(isinstance(piece, int) for piece in pieces):
                return self.conform(tensors.free_pieces(whole, base, how, axis, len(pieces)), fake, call.name)
            arguments, kwargs = [whole, [self.plain(piece) for piece in pieces], axis], {}
        if base == "unbind" and isinstance(fake, (list, tuple)):
            arguments, kwargs = adapting.counted(arguments, kwargs, call.given, fake), {}
        arguments, kwargs = adapting.floats_as_floats(call.target, arguments, kwargs)
        as_vector = function.origin == "torchlib" and adapting.is_scalar_along_an_axis(call.target, arguments, fake)
        if as_vector:
            arguments = [adapting.as_vector(argument) for argument in arguments]
            kwargs = {key: adapting.as_vector(argument) for key, argument in kwargs.items()}
        try:
            result = self.recorder.call(function.function, arguments, kwargs)
        except (TypeError, TranslationError):
            if function.origin == "custom" or not symbolic_scalars.given(call.target, call.args, call.kwargs):
                raise
            other = symbolic_scalars.tensor_overload(call.target)
            return None if other is None else self.call(replace(call, target=other))
        if as_vector:
            result = pytree.tree_map(adapting.as_scalar, result)
        if isinstance(result, ir.Value) and adapting.has_several_results(call.target):
            result = [result]  # the first one is all that such a translation gives
        self._count(qualified, function.origin)
        return self.conform(result, fake, call.name)

    def _becomes_complex(self, call: Call) -> bool:
        return promote.base_name(call.qualified) in complex_parts.IN_COMPLEX and adapting.is_complex(call.result)

    def _count(self, qualified: str, origin: str) -> None:
        self.operators[qualified] = (self.operators.get(qualified, (0, ""))[0] + 1, origin)

    def _by_parts(self, call: Call) -> object:
        """Real and imaginary parts by the translation for real tensors; None where there is none."""

        def real(args: Sequence[object], kwargs: Mapping[str, object], fake: object, end: str) -> object:
            if base in memory_layout.READS_MEMORY and isinstance(whole, torch.Tensor):
                args, kwargs = memory_layout.in_memory_order([*args, *kwargs.values()], whole), {}
            return self.call(Call(call.target, args, kwargs, fake, f"{call.name}_{end}"))

        if not self._has_parts(call.target):
            return None
        base = promote.base_name(call.qualified)
        whole = call.given[0] if call.given else None
        if base in memory_layout.IN_ORDER_ONLY and isinstance(whole, torch.Tensor):
            memory_layout.require_order(whole, base)
        result = complex_parts.by_parts(base, call.args, call.kwargs, call.result, real)
        return None if result is None else self.conform(result, call.result, call.name)

    def _has_parts(self, target: object) -> bool:
        base = promote.base_name(qualified_name(target))
        linear = base in complex_parts.LINEAR or base in complex_parts.BILINEAR
        return linear and self.registry.lookup(target) is not None

    def _nothing(self, fake: torch.Tensor) -> ir.Value:
        """The tensor without elements that every operator gives there: runtimes refuse many operators on such."""
        dtype = torch_tensors.data_type(fake.dtype)
        if all(isinstance(size, int) for size in fake.shape):
            return self.recorder.constant(np.zeros(tuple(fake.shape), dtype=dtype.numpy()), dtype)
        return op.Cast(op.ConstantOfShape([self.plain(size) for size in fake.shape]), to=dtype)

    def decompose(
        self,
        target: object,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        values: dict[int, Any],
        name: str,
        *,
        as_torch: bool = False,
    ) -> object:
        """Translates an operator through torch's decomposition of it.

        Args:
            values: id of a fake tensor among the arguments -> its ONNX value; what the decomposition makes is added.
            as_torch: whether what torch itself would take apart further is, although it has a translation here.
        """
        keep: list[object] = []
        steps: dict[int, object] = {}

        def value_of(leaf: object) -> object:
            if isinstance(leaf, torch.Tensor):
                found = values.get(id(leaf))
                if found is not None:
                    return found
                constant = getattr(leaf, "constant", None)
                if constant is None and not isinstance(leaf, torch._subclasses.FakeTensor):
                    constant = leaf
                if constant is not None:
                    with unset_fake_temporarily():
                        return self.tensor_constant(constant)
                raise DecompositionError("a decomposition used a tensor that no recorded operator made")
            return self.plain(leaf)

        def is_translatable(func: object, func_args: Sequence[object], func_kwargs: Mapping[str, object]) -> bool:
            if qualified_name(func) in IGNORED_NAMES:
                return True
            if as_torch and own_parts.torch_takes_apart(func) and not self.registry.is_own(func):
                return False
            fakes = pytree.tree_leaves((list(func_args), dict(func_kwargs)))
            if any(adapting.is_complex(leaf) for leaf in fakes):
                return self.registry.lookup(func, is_complex=True) is not None or self._has_parts(func)
            found = self.registry.lookup(func)
            return found is not None and not adapting.is_taken_apart(found, qualified_name(func), fakes)

        def translate(
            func: object, func_args: Sequence[object], func_kwargs: Mapping[str, object], output: object
        ) -> None:
            if qualified_name(func) in IGNORED_NAMES:
                return
            converted, converted_kwargs = pytree.tree_map(value_of, (list(func_args), dict(func_kwargs)))
            fakes = pytree.tree_leaves((list(func_args), dict(func_kwargs)))
            result = self.call(Call(func, converted, converted_kwargs, output, f"{name}_part", fakes))
            if result is None and output is not None:
                raise TranslationError(
                    f"{qualified_name(func)} takes a number that is known only when the model runs",
                    next_step="make that number a tensor, or keep the axis that it comes from static",
                )
            steps.update((id(value), value) for value in pytree.tree_leaves(result))
            store(output, result)

        def store(output: Any, result: Any) -> None:
            if isinstance(output, torch.Tensor):
                values[id(output)] = result
                keep.append(output)
            elif isinstance(output, (list, tuple)):
                if isinstance(result, ir.Value):
                    raise DecompositionError("a decomposition takes apart a sequence of unknown length")
                for one, of in zip(output, result, strict=False):
                    store(one, of)

        def rebind(changed: torch.Tensor, content: torch.Tensor) -> None:
            values.pop(id(changed), None)  # a translation may leave out contents: whoever reads them is refused
            if id(content) in values:
                values[id(changed)] = values[id(content)]

        assert self._fake_mode is not None
        result = decompose.run_decomposition(
            target,
            args,
            kwargs,
            fake_mode=self._fake_mode,
            is_translatable=is_translatable,
            translate=translate,
            rebind=rebind,
        )
        self._count(qualified_name(target), "decomposition")
        found = pytree.tree_map(value_of, result) if not isinstance(result, torch.Tensor) else value_of(result)
        for value in pytree.tree_leaves(found):
            if id(value) in steps:
                let_name_go(value)  # it is called as the operator that is taken apart
        return found

    def run_nodes(self, graph_module: torch.fx.GraphModule, env: dict[torch.fx.Node, object]) -> Any:
        """Translates the nodes of a graph whose placeholders are in `env`; who walks graphs says how."""
        raise NotImplementedError

    def apply(
        self,
        node: torch.fx.Node,
        target: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        fake: Any,
        env: Mapping[torch.fx.Node, Any],
    ) -> Any:
        """Translates a node with the given target in place of its own, through a decomposition where it must be."""
        fakes = given_fakes(node)
        if not any(isinstance(leaf, ir.Value) for leaf in pytree.tree_leaves((args, kwargs))) and not isinstance(
            target, torch._ops.OpOverload
        ):
            return target(*args, **kwargs)  # plain arithmetic on numbers
        values = {
            id(argument.meta["val"]): env[argument]
            for argument in node.all_input_nodes
            if isinstance(argument.meta.get("val"), torch.Tensor)
        }

        def fake_of(argument: Any) -> Any:
            return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument

        fake_args = torch.fx.map_arg(node.args, fake_of)
        fake_kwargs = torch.fx.map_arg(node.kwargs, fake_of)
        mode = self._fake_mode
        if (
            self.registry.has_custom
            and mode
            and own_parts.reaches_own(self.registry, target, fake_args, fake_kwargs, mode)
        ):
            with contextlib.suppress(DecompositionError):
                made = self.decompose(target, fake_args, fake_kwargs, values, node.name, as_torch=True)
                return self.conform(made, fake, node.name)
        result = self.call(Call(target, args, kwargs, fake, node.name, fakes))
        if result is not None:
            return result
        if fake is None:
            return None
        number = of_numbers.computed(target, node.args, node.kwargs, fake)
        if number is not None:
            self._count(qualified_name(target), "torch")
            return self.conform(self.tensor_constant(number), fake, node.name)
        result = self.decompose(target, fake_args, fake_kwargs, values, node.name)
        return self.conform(result, fake, node.name)
