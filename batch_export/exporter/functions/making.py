"""Calls of modules as functions of the ONNX model: one for each distinct block, however often it is called.

Arrives: an optimised model whose nodes are noted with the calls of modules around them (`calls.py`), and which
classes are wanted. Leaves: the same model, changed in place: each wanted call is one node, and what it does is a
function of the model, in the domain of the class's package. Calls that do the same share a function; where a class's
calls differ (operators, attributes, constants, sizes of what goes in), its functions are numbered. Weights and all
other values from outside are inputs of the call. Written out again (`inlining.py`) the model is what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from batch_export.exporter.functions import calls as module_calls
from batch_export.exporter.functions.calls import Calls, ModuleCall, owners_of, within
from batch_export.exporter.functions.groups import Group, common_shape, group_of, is_parameter, is_weight
from batch_export.exporter.graph import metadata
from batch_export.exporter.graph.free_names import free_name

_FIRST_IR_VERSION = 8
"""The first IR version whose models have functions."""
MODULE = "batch_export.module"
"""Of a call's metadata, and of a function's: the path of the module that is called, or whose call it was made of."""


@dataclass(frozen=True, slots=True)
class ModuleFunction:
    """One function of a model.

    Attributes:
        domain: the package of the module's class.
        name: the class's name, numbered where another function has it.
        kind: the class, `package.module.Class`.
        calls: paths of the modules whose calls it stands for, in order; `path@1` for a module's second call.
        nodes: how many nodes it has.
    """

    domain: str
    name: str
    kind: str
    calls: tuple[str, ...]
    nodes: int


@dataclass(frozen=True, slots=True)
class Functions:
    """What became of the wanted calls.

    Attributes:
        wanted: the classes whose calls were wanted.
        made: the functions, callers after what they call.
        left: call -> why its nodes stay where they are.
    """

    wanted: frozenset[str] = frozenset()
    made: tuple[ModuleFunction, ...] = ()
    left: dict[str, str] = field(default_factory=dict)


def make_functions(model: ir.Model, wanted: Collection[str]) -> Functions:
    """Makes functions in place.

    Args:
        model: with notes of the calls around each node.
        wanted: classes whose calls are to be functions.
    """
    return _Making(model, frozenset(wanted)).run()


class _Making:
    def __init__(self, model: ir.Model, wanted: frozenset[str]) -> None:
        self._model = model
        self._wanted = wanted
        self._owners = owners_of(model.graph)
        noted = module_calls.taken(model)
        self._calls: dict[ir.Node, Calls] = {
            node: tuple(one for one in calls if one.kind in wanted) for node, calls in noted.items()
        }
        self._order: list[ir.Node | None] = list(model.graph)
        self._at = {node: at for at, node in enumerate(model.graph)}
        self._instead: dict[ir.Value, ir.Value] = {}
        self._names: set[tuple[str, str]] = set()
        self._made: list[ModuleFunction] = []
        self._left: dict[str, str] = {}

    def run(self) -> Functions:
        deepest = max(map(len, self._calls.values()), default=0)
        if not deepest:
            return Functions(self._wanted)
        self._move_what_is_shared()
        graph = self._model.graph
        graph.remove([node for node in self._order if node is not None])
        for depth in range(max(map(len, self._calls.values()), default=0), 0, -1):
            self._at_depth(depth)
        graph.extend(node for node in self._order if node is not None)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not _has_kind(value):
                del graph.initializers[name]
        if self._made:
            self._model.ir_version = max(self._model.ir_version, _FIRST_IR_VERSION)
        return Functions(self._wanted, tuple(self._made), self._left)

    def _readers(self, value: ir.Value) -> list[ir.Node]:
        return [self._owners.get(user, user) for user, _ in value.uses()]

    # What one call computes for others of its like as well, since equal nodes are one.

    def _move_what_is_shared(self) -> None:
        for node in list(self._model.graph):
            level = 0
            while level < len(self._calls[node]):
                around = self._calls[node][: level + 1]
                if self._is_shared(node, around):
                    closure = self._needed(node, around)
                    if not _has_weights_and_data(closure):
                        self._calls.update((one, around[:-1]) for one in closure)
                        break
                level += 1

    def _is_shared(self, node: ir.Node, around: Calls) -> bool:
        readers = [self._calls[reader] for value in node.outputs for reader in self._readers(value)]
        inside = any(one[: len(around)] == around for one in readers)
        like = any(
            len(one) >= len(around)
            and one[: len(around) - 1] == around[:-1]
            and one[len(around) - 1] != around[-1]
            and one[len(around) - 1].kind == around[-1].kind
            for one in readers
        )
        return inside and like

    def _needed(self, node: ir.Node, around: Calls) -> set[ir.Node]:
        """The nodes of a call that one of them needs, itself included."""
        found: set[ir.Node] = set()
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one in found or self._calls[one][: len(around)] != around:
                continue
            found.add(one)
            read = [value for inner in (one, *within(one)) for value in inner.inputs if value is not None]
            waiting += [maker for value in read if (maker := value.producer()) is not None and maker in self._calls]
        return found

    # Calls of one depth.

    def _at_depth(self, depth: int) -> None:
        nodes: dict[Calls, list[ir.Node]] = defaultdict(list)
        for node in self._order:
            if node is not None and len(self._calls[node]) >= depth:
                nodes[self._calls[node][:depth]].append(node)
        groups: dict[tuple[str, Hashable], list[tuple[Calls, Group]]] = defaultdict(list)
        for calls, own in nodes.items():
            if not self._brought_together(own):
                self._left[str(calls[-1])] = "nodes of others lie between its own, which need them and which they need"
                for node in own:
                    self._calls[node] = calls[:-1] + self._calls[node][depth:]
                continue
            group = group_of(own)
            groups[calls[-1].kind, group.key].append((calls, group))
        for (kind, _), found in groups.items():
            self._function(kind, found)

    def _brought_together(self, nodes: Sequence[ir.Node]) -> bool:
        """Puts nodes of others before or after a group's own; whether there is such an order."""
        own = set(nodes)
        low, high = self._at[nodes[0]], self._at[nodes[-1]]
        after: list[ir.Node] = []
        before: list[ir.Node] = []
        dependent: set[ir.Node] = set()
        for node in self._order[low : high + 1]:
            if node is None:
                continue
            read = [value.producer() for inner in (node, *within(node)) for value in inner.inputs if value is not None]
            needs_later = any(maker in dependent for maker in read if maker is not None)
            if node in own:
                if needs_later:
                    return False
            elif needs_later or any(maker in own for maker in read if maker is not None):
                dependent.add(node)
                after.append(node)
            else:
                before.append(node)
        placed = [*before, *nodes, *after]
        self._order[low : high + 1] = [*placed, *[None] * (high + 1 - low - len(placed))]
        self._at.update((node, low + at) for at, node in enumerate(placed))
        return True

    def _function(self, kind: str, found: Sequence[tuple[Calls, Group]]) -> None:
        domain, name = self._name(kind)
        left = sorted({place for _, group in found for place in group.left})
        for around, group in found:
            self._call(domain, name, around, group, left)
        _agree([group for _, group in found])
        template_calls, template = found[0]
        body = self._body(template, left, template_calls[-1])
        function = ir.Function(domain, name, graph=body, attributes=[])
        function.metadata_props[MODULE] = str(template_calls[-1])
        self._model.functions[function.identifier()] = function
        self._model.graph.opset_imports[domain] = 1
        for _, group in found:
            if group is not template:
                for one in group.own:
                    for at in range(len(one.inputs)):
                        one.replace_input_with(at, None)
        paths = tuple(str(around[-1]) for around, _ in found)
        self._made.append(ModuleFunction(domain, name, kind, paths, len(template.nodes)))

    def _given(self, group: Group) -> list[ir.Value]:
        """What a call is given: first what is computed, then weights."""
        given = [self._instead.get(one, one) for one in group.given]  # calls may stand for its makers by now
        return [*(one for one in given if not is_weight(one)), *(one for one in given if is_weight(one))]

    def _name(self, kind: str) -> tuple[str, str]:
        package, _, name = kind.rpartition(".")
        domain = package.replace(".<locals>", "") or "modules"
        found, number = name, 0
        while (domain, found) in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add((domain, found))
        return domain, found

    def _call(self, domain: str, name: str, around: Calls, group: Group, left: Sequence[tuple[int, int]]) -> None:
        """Puts the node that stands for a group in its place."""
        outputs: list[ir.Value] = []
        own = group.own
        for at, number in left:
            old = group.nodes[at].outputs[number]
            new = self._instead[old] = ir.Value(name=old.name, type=old.type, shape=old.shape)
            new.metadata_props.update(old.metadata_props)
            for user, index in tuple(old.uses()):
                if user not in own:
                    user.replace_input_with(index, new)
            if old.is_graph_output():
                listed = self._model.graph.outputs
                for index, value in enumerate(listed):
                    if value is old:
                        listed[index] = new
            outputs.append(new)
        call = ir.Node(domain, name, self._given(group), outputs=outputs, version=1, name=f"node_{around[-1]}")
        call.metadata_props.update(_place(group.nodes, around[-1]))
        call.metadata_props[MODULE] = str(around[-1])
        self._calls[call] = around[:-1]
        first, last = self._at[group.nodes[0]], self._at[group.nodes[-1]]
        self._order[first : last + 1] = [*[None] * (last - first), call]
        self._at[call] = last

    def _body(self, group: Group, left: Sequence[tuple[int, int]], call: ModuleCall) -> ir.Graph:
        """The nodes of a group, on inputs of their own."""
        own = group.own
        names = {value.name for node in own for value in node.outputs}
        names |= {value.name for node in own for body in _bodies(node) for value in body.inputs}
        inputs, constants = [], []
        for value in self._given(group):
            stands = ir.Value(name=free_name(_short(value, call), names), type=value.type, shape=_copied(value.shape))
            _replace(value, stands, own)
            inputs.append(stands)
        for value in group.constants:
            assert value.const_value is not None
            node = ir.Node(
                "",
                "Constant",
                [],
                [ir.AttrTensor("value", value.const_value)],
                outputs=[ir.Value(name=free_name(value.name or "constant", names), type=value.type, shape=value.shape)],
            )
            node.name = f"node_{node.outputs[0].name}"
            _replace(value, node.outputs[0], own)
            constants.append(node)
        opsets = {"": self._model.opset_imports[""]}
        domains = sorted({node.domain for node in own})  # a set has another order in another run, and so had the file
        opsets.update((domain, self._model.opset_imports.get(domain, 1)) for domain in domains)
        outputs = [group.nodes[at].outputs[number] for at, number in left]
        return ir.Graph(inputs, outputs, nodes=[*constants, *group.nodes], opset_imports=opsets, name=call.path)


def _agree(groups: Sequence[Group]) -> None:
    """Leaves to the values of the first group's nodes the shapes that they have in all."""
    for values in zip(*(_made(group) for group in groups), strict=True):
        values[0].shape = common_shape([value.shape for value in values])


def _made(group: Group) -> Iterator[ir.Value]:
    """The values of a group, those of bodies too, in an order that is the same in all groups of one key."""
    for node in group.nodes:
        for one in (node, *within(node)):
            yield from one.outputs
            for body in _bodies(one):
                yield from body.inputs


def _copied(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else shape.copy()


def _replace(value: ir.Value, new: ir.Value, own: set[ir.Node]) -> None:
    for user, index in tuple(value.uses()):
        if user in own:
            user.replace_input_with(index, new)


def _short(value: ir.Value, call: ModuleCall) -> str:
    """A weight's name below the module that is called."""
    name = value.name or "given"
    return name.removeprefix(f"{call.path}.") if is_weight(value) else name


def _bodies(node: ir.Node) -> Iterable[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.value
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.value


def _has_weights_and_data(nodes: set[ir.Node]) -> bool:
    """Whether some nodes do what a module is for: compute something of its parameters and of what it is given."""
    read = [value for node in nodes for one in (node, *within(node)) for value in one.inputs if value is not None]
    outside = [value for value in read if value.producer() is None or value.producer() not in nodes]
    return any(map(is_parameter, outside)) and not all(map(is_weight, outside))


def _has_kind(value: ir.Value) -> bool:
    return metadata.KIND.format(side="Input") in value.metadata_props


def _place(nodes: Sequence[ir.Node], call: ModuleCall) -> dict[str, str]:
    """Where a call is, in the words in which nodes say it: the properties of a node of it, up to the module."""
    for node in nodes:
        found = metadata.up_to_module(node.metadata_props, call.path)
        if found:
            return found
    return {}
