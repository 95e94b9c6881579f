"""Writes: in-place operators become new values, and every alias of what was written sees the new content.

Arrives: nodes whose operators write to an argument. Leaves: ONNX values, with the environment rebound: the tensor that
was written, the tensors it is a view of, and their other views. Buffers and inputs that a program changes are collected
in `mutated`. What cannot be followed is left to torch's own functionalisation of the whole program.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from batch_export.errors import TranslationError
from batch_export.exporter.graph import metadata, promote
from batch_export.exporter.graph.operators import op
from batch_export.exporter.ops import copying
from batch_export.exporter.translate import adapting, aliasing, changed_axes, decompose, memory_layout
from batch_export.exporter.translate.call import Call, given_fakes
from batch_export.exporter.translate.operator import OperatorTranslator
from batch_export.exporter.translate.registry import qualified_name

aten = torch.ops.aten

_OWN_FORMS: Mapping[object, str] = {aten.fill_diagonal_.default: "batch_export::fill_diagonal"}
"""In-place operators that torch has no functional form of -> the name of ours."""
_OTHER_MEMORY = frozenset({aten.set_.source_Tensor})
"""Operators that have a tensor share another's memory from there on; its views keep the old one."""
_RUNNING_STATISTICS = frozenset({"aten::batch_norm", "aten::instance_norm"})


class FunctionalisationNeededError(Exception):
    """A write through a view that is not followed here; torch's own functionalisation must run on the whole program."""


class Writes:
    """Views and writes of one program.

    Attributes:
        mutated: placeholders (buffers and inputs) that were written, in order, and the node that wrote to each first.
    """

    def __init__(self, translator: OperatorTranslator) -> None:
        self._translator = translator
        self.mutated: dict[torch.fx.Node, torch.fx.Node] = {}
        self._views: dict[torch.fx.Node, torch.fx.Node] = {}

    def notice(self, node: torch.fx.Node) -> None:
        """Remembers a node whose result is a view."""
        parent = aliasing.view_parent(node)
        if parent is not None:
            self._views[node] = parent

    @staticmethod
    def moves_statistics(node: torch.fx.Node, qualified: str) -> bool:
        """Whether a node is a normalisation in training mode that keeps running statistics."""
        if qualified not in _RUNNING_STATISTICS or len(node.args) <= 5:
            return False
        return bool(node.args[5]) and node.args[3] is not None

    def translate_training_norm(self, node: torch.fx.Node, env: dict[torch.fx.Node, object], qualified: str) -> object:
        """Normalisation in training mode moves its running statistics, which its schema does not say."""
        statistics = [argument for argument in node.args[3:5] if isinstance(argument, torch.fx.Node)]
        args = [self._translator.convert(argument, env) for argument in node.args[:8]]
        target = f"batch_export::{qualified.partition('::')[2]}_training"
        results = self._translator.call(Call(target, args, {}, (None, None, None), node.name))
        for changed, content in zip(statistics, results[1:], strict=True):
            moved = self._translator.conform(content, changed.meta["val"], f"{node.name}_statistic")
            self.rebind(changed, moved, env, node)
        return self._translator.conform(results[0], node.meta["val"], node.name)

    def translate(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any], written: tuple[int, ...]) -> object:
        if node.target in _OTHER_MEMORY:
            self._refuse_other_memory(node)
            raise FunctionalisationNeededError(str(node.target))
        changed_axes.refuse_other_size(node, self._views, env)
        functional = _OWN_FORMS.get(node.target) or decompose.functional_variant(node.target)
        if functional is None and self._translator.registry.lookup(node.target) is not None:
            return self._translate_custom(node, env, written)
        changed = node.args[0] if node.args else None
        if functional is None or written != (0,) or not isinstance(changed, torch.fx.Node):
            raise FunctionalisationNeededError(str(node.target))
        args = [self._translator.convert(argument, env) for argument in node.args]
        kwargs = {name: self._translator.convert(argument, env) for name, argument in node.kwargs.items()}
        fake = node.meta.get("val")
        if functional == aten.copy.default:
            before = changed.meta["val"]
            if changed.op == "placeholder" and (after := _assigned(before, node.args[1])) is not None:
                self.rebind(changed, self._translator.conform(args[1], after, node.name), env, node)
                return env[changed]
            content = copying.over(env[changed], args[1], is_known=all(isinstance(one, int) for one in before.shape))
            result = self._translator.conform(content, before, node.name)
        else:
            result = self._apply_write(node, functional, args, kwargs, fake, env)
        self._views[node] = changed
        self.rebind(changed, result, env, node)
        return result

    @staticmethod
    def _refuse_other_memory(node: torch.fx.Node) -> None:
        """A buffer or an input that gets another tensor's memory is one that torch makes nothing of either."""
        changed = node.args[0]
        if isinstance(changed, torch.fx.Node) and changed.op == "placeholder":
            raise TranslationError(
                f"forward gives `{changed.name}` the memory of another tensor (`set_`, or an assignment to its "
                "`.data`), which a file cannot do",
                next_step="write the numbers (copy_), or assign the buffer itself (self.name = new)",
            )

    def _translate_custom(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any], written: tuple[int, ...]) -> object:
        """A mutating operator whose own translation gives its results, then the new content of what it writes to."""
        formals = node.target._schema.arguments  # type: ignore[union-attr]
        changed: list[Any] = [node.args[at] if at < len(node.args) else node.kwargs[formals[at].name] for at in written]
        own: Any = node.meta.get("val")
        count = 0 if own is None else len(own) if isinstance(own, (list, tuple)) else 1
        results = list(own) if isinstance(own, (list, tuple)) else [own][:count]
        fakes = [*results, *(one.meta["val"] for one in changed)]
        args = [self._translator.convert(argument, env) for argument in node.args]
        kwargs = {name: self._translator.convert(argument, env) for name, argument in node.kwargs.items()}
        made = self._translator.call(Call(node.target, args, kwargs, fakes, node.name, given_fakes(node)))
        values = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(values) != len(fakes):
            raise TranslationError(
                f"the translation of {qualified_name(node.target)} gives {len(values)} values in place of {len(fakes)}",
                next_step="return the operator's own results, then the new content of each tensor that it writes to",
            )
        for one, content in zip(changed, values[count:], strict=True):
            self.rebind(one, content, env, node)
        return values[:count] if isinstance(own, (list, tuple)) else values[0] if count else None

    def _apply_write(
        self, node: torch.fx.Node, functional: Any, args: list[Any], kwargs: dict[str, Any], fake: Any, env: Any
    ) -> object:
        computed = _computed(node, functional, fake)
        name = node.name if computed is fake else f"{node.name}_computed"
        result = self._translator.call(Call(functional, args, kwargs, computed, name, given_fakes(node)))
        if result is not None:
            return result if computed is fake else self._translator.conform(result, fake, node.name)
        values = {
            id(argument.meta["val"]): env[argument]
            for argument in node.all_input_nodes
            if isinstance(argument.meta.get("val"), torch.Tensor)
        }
        fake_args = torch.fx.map_arg(node.args, lambda argument: argument.meta["val"])
        fake_kwargs = torch.fx.map_arg(node.kwargs, lambda argument: argument.meta["val"])
        made = self._translator.decompose(functional, fake_args, fake_kwargs, values, node.name)
        return self._translator.conform(made, fake, node.name)

    def _shape_of(self, fake: torch.Tensor) -> list[object]:
        return [self._translator.plain(size) for size in fake.shape]

    def rebind(
        self, changed: torch.fx.Node, content: object, env: dict[torch.fx.Node, object], writer: torch.fx.Node
    ) -> None:
        """Gives a node, the tensors it is a view of, and their other views the content after a write."""
        env[changed] = content
        chain = [changed]
        while (parent := self._views.get(chain[-1])) is not None:
            chain.append(parent)
        first = next((at for at in reversed(range(len(chain))) if aliasing.repeats(chain[at])), -1) + 1
        if first:  # between a view that repeats elements and what was written, one write shows at several places
            env[chain[first]] = self._merge_by_position(chain[:first], chain[first], env)
        for child, parent in itertools.pairwise(chain[first:]):
            if decompose.mutated_arguments(child.target):  # the result of an in-place operator is the tensor itself
                env[parent] = env[child]
            else:
                env[parent] = self._merge(child, parent, env)
        root = chain[-1]
        if root.op in ("placeholder", "get_attr"):
            self.mutated.setdefault(root, writer)
        stale = {*chain[:1], *chain[first:]}
        with_views = set(self._views.values())
        for view, parent in self._views.items():
            if view in stale or parent not in stale or view not in env:
                continue
            stale.add(view)
            if decompose.mutated_arguments(view.target):
                env[view] = env[parent]
                continue
            if view not in with_views and all(user in env for user in view.users):
                continue  # nobody reads it any more
            if view.target is operator.getitem:
                container = view.args[0]
                assert isinstance(container, torch.fx.Node)
                pieces = [self._translator.convert(argument, env) for argument in container.args]
                made = self._translator.apply(container, container.target, pieces, {}, container.meta["val"], env)
                env[view] = made[view.args[1]]
                continue
            args = [self._translator.convert(argument, env) for argument in view.args]
            kwargs = {name: self._translator.convert(argument, env) for name, argument in view.kwargs.items()}
            env[view] = self._translator.apply(view, view.target, args, kwargs, view.meta["val"], env)

    def _merge(self, view: torch.fx.Node, parent: torch.fx.Node, env: dict[torch.fx.Node, object]) -> object:
        before = parent.meta["val"]
        recipe = aliasing.merge_view(view, before)
        if recipe is None:
            return self._merge_by_position([view], parent, env)
        target, template = recipe
        args: list[object] = []
        for index, item in enumerate(template):
            if item is ...:
                args.append(env[view])
            elif index == 0 and item is None:
                args.append(env[parent])
            else:
                args.append(self._translator.convert(item, env))
        result = self._translator.call(Call(target, args, {}, before, f"{view.name}_written", [before]))
        if result is None:
            raise FunctionalisationNeededError(str(target))
        return result

    def _merge_by_position(
        self, path: Sequence[torch.fx.Node], parent: torch.fx.Node, env: Mapping[torch.fx.Node, Any]
    ) -> ir.Value:
        """Writes a view's elements to where they lie in its parent, whatever operators made the view.

        Args:
            path: the view, what it is a view of, and so on up to a view of the parent.
            parent: what takes up the view's content.
            env: the values of both.
        """
        before = parent.meta["val"]
        if adapting.is_empty(before):  # nothing of it can have been written
            return env[parent]  # type: ignore[no-any-return]
        views = [view for view in reversed(path) if not decompose.mutated_arguments(view.target)]
        for view, of in zip(views, [parent, *views], strict=False):
            self._check_declared(view, of)
        views = [view for view in views if not aliasing.reads_other_numbers(view)]
        content, fake = env[path[0]], path[0].meta["val"]
        if fake.dtype != before.dtype:
            args, made = [content, self._translator.plain(before.dtype)], _of_numbers(fake, before.dtype)
            content = self._translator.call(Call(aten.view.dtype, args, {}, made, f"{path[0].name}_bits", [fake]))
        if all(aliasing.is_fixed(view) for view in views) and all(isinstance(size, int) for size in before.shape):
            places = aliasing.positions(views, [int(size) for size in before.shape]).reshape(-1).tolist()
        else:
            places = self._places(views, env[parent], before, env)
        flat = op.Reshape(env[parent], [-1])
        written = op.ScatterElements(flat, places, op.Reshape(content, [-1]), axis=0)
        merged: ir.Value = op.Reshape(written, self._shape_of(before))
        self._translator.describe(merged, before)
        return merged

    @staticmethod
    def _check_declared(view: torch.fx.Node, parent: torch.fx.Node) -> None:
        """Refuses what cannot be written through by the places of its elements."""
        before = parent.meta["val"]
        reads_memory = promote.base_name(qualified_name(view.target)) in memory_layout.READS_MEMORY
        shows_pairs = view.meta["val"].is_complex()  # one number of it is two of what it is a view of
        if before.is_complex() or shows_pairs or (reads_memory and not memory_layout.is_in_order(before)):
            raise FunctionalisationNeededError(str(view.target))
        maker = view.all_input_nodes[0] if view.target is operator.getitem else view
        if maker.args[0] is not parent:  # torch's own functionalisation loses such a write
            raise TranslationError(
                f"{view.name} is written, and shares memory with {parent.name} that {maker.target} does not declare",
                node=view.name,
                operator=str(maker.target),
                source=metadata.source_location(view),
                next_step="write to a clone of it, or to the tensor itself",
            )

    def _places(
        self,
        views: Sequence[torch.fx.Node],
        parent: ir.Value,
        before: torch.Tensor,
        env: Mapping[torch.fx.Node, object],
    ) -> Any:
        """Where a view's elements lie in a parent of free sizes: the same views of the parent's elements, counted."""
        counted = op.Reshape(op.Range(0, op.Size(parent), 1), self._shape_of(before))
        self._translator.describe(counted, _of_numbers(before))
        shown = before
        for view in views:
            of_list = view.target is operator.getitem
            maker = view.all_input_nodes[0] if of_list else view
            args = [counted, *(self._translator.convert(argument, env) for argument in maker.args[1:])]
            kwargs = {name: self._translator.convert(argument, env) for name, argument in maker.kwargs.items()}
            fakes = pytree.tree_map_only(torch.Tensor, _of_numbers, maker.meta["val"])
            made = self._translator.call(Call(maker.target, args, kwargs, fakes, f"{view.name}_positions", [shown]))
            if made is None:
                raise FunctionalisationNeededError(str(view.target))
            counted = made[view.args[1]] if of_list else made
            shown = view.meta["val"]
        return op.Reshape(counted, [-1])


def _of_numbers(fake: torch.Tensor, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A fake tensor of its sizes for other numbers; to convert one that overlaps itself would fix its sizes."""
    return fake.new_empty(fake.shape, dtype=dtype)


def _computed(node: torch.fx.Node, functional: Any, fake: Any) -> Any:
    """What the functional form gives: of wider numbers beside what is written to another dtype than that has."""
    given = given_fakes(node)
    are_wider = any(isinstance(one, torch.Tensor) and one.dtype != fake.dtype for one in given)
    if not isinstance(fake, torch.Tensor) or not are_wider or not promote.is_converted(qualified_name(functional)):
        return fake
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    made = functional(*args, **kwargs)
    return fake if made.dtype == fake.dtype else made


def _assigned(before: torch.Tensor, source: object) -> torch.Tensor | None:
    """What a buffer became where forward assigned it anew with a shape that no copy could give it; torch.export writes
    an assignment as a copy, and a copy's source has the sizes of its destination, or 1.
    """
    after = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    if not isinstance(after, torch.Tensor):
        return None
    pairs = zip(reversed(after.shape), reversed(before.shape), strict=False)
    grown = any(isinstance(old, int) and (not isinstance(new, int) or new not in (1, old)) for new, old in pairs)
    return after if grown or after.dim() > before.dim() else None
