"""Lists of numbers that a model's code makes of a size: `torch.tensor([1 / i for i in range(n)])`.

Arrives: a function's code. Leaves: code that does the same, in which the list is known by what makes its elements
(`number_elements.py`), so that its length stays free. A list under a name is one where nothing else is done with that
name; a loop of one `append` is such a list, too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType

from batch_export.exporter.capture import function_sources

LISTED, CALLED, CHOSEN, TAKEN = "__numbers_of_a_size__", "__of_numbers__", "__chosen_number__", "__tensor_of_numbers__"
"""What the new code calls: a list by its elements, a function in one, a choice, what makes a tensor of a list."""
_LEGACY = frozenset(("LongTensor", "FloatTensor", "IntTensor", "DoubleTensor", "Tensor"))
_TAKING = _LEGACY | {"tensor", "as_tensor", "asarray", "new_tensor"}
_ELEMENTS = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.Compare),
    *(ast.IfExp, ast.Call, ast.ListComp, ast.comprehension, ast.keyword, ast.operator, ast.unaryop, ast.cmpop),
    ast.expr_context,
)


def with_numbers(code: CodeType) -> CodeType:
    """The same function, with such lists as calls; the code itself where it has none."""
    if not _TAKING.intersection(code.co_names) or code.co_name.startswith("<"):
        return code
    if "range" not in _names(code) and not _LEGACY.intersection(code.co_names):
        return code
    made = function_sources.tree_of(code)
    if made is None:
        return code
    trial = _Joined(made, frozenset(_read(made)))
    named = _Taking.of(trial.visit(copy.deepcopy(made))).named
    at_once = {name for name in trial.taken if trial.taken.count(name) == trial.filled.count(name)}
    made = _Joined(made, named | at_once).visit(made)
    taking = _Taking.of(made)
    if not taking.lists:
        return code
    made.body = [taking.visit(one) for one in made.body]
    return function_sources.compiled(made, code) or code


def _names(code: CodeType) -> set[str]:
    return {*code.co_names, *(name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one))}


@dataclass(slots=True)
class _Joined(ast.NodeTransformer):
    """Makes one list of `w = []` and a loop of one `w.append(...)` behind it, and takes `w = torch.tensor(w)` together.

    Attributes:
        function: what it stands in.
        names: the lists that may be made so.
        filled, taken: those that were made so, and those that were taken together.
    """

    function: ast.FunctionDef
    names: frozenset[str]
    filled: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """A statement with others in it."""
        ast.NodeTransformer.generic_visit(self, node)
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                setattr(node, name, self._all(inner))
        return node

    def _all(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for one in body:
            joined = self._filled(made[-1], one) or self._taken(made[-1], one) if made else None
            if joined is None:
                made.append(one)
            else:
                made[-1] = ast.fix_missing_locations(joined)
        return made

    def _filled(self, first: ast.stmt, loop: ast.stmt) -> ast.stmt | None:
        match first, loop:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])),
                ast.For(
                    target=ast.Name(id=step) as target, iter=over, body=[ast.Expr(value=ast.Call() as call)], orelse=[]
                ),
            ) if name in self.names:
                pass
            case _:
                return None
        is_append = ast.unparse(call.func) == f"{name}.append" and len(call.args) == 1 and not call.keywords
        if not is_append or isinstance(call.args[0], ast.Starred):
            return None
        element = call.args[0]
        if name in _read(element) + _read(over) or _is_read_outside(self.function, step):
            return None  # behind a loop the step is its last one
        listed = ast.ListComp(element, [ast.comprehension(target=target, iter=over, ifs=[], is_async=0)])
        assigned = ast.Assign([ast.Name(name, ast.Store())], ast.copy_location(listed, loop))
        if not _is_of_numbers(listed):
            return None
        self.filled.append(name)
        return ast.copy_location(assigned, loop)

    def _taken(self, first: ast.stmt, second: ast.stmt) -> ast.stmt | None:
        match first, second:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.ListComp() as listed),
                ast.Assign(targets=[ast.Name(id=again)], value=value),
            ) if name == again and _is_of_numbers(listed) and _read(value).count(name) == 1:
                pass
            case _:
                return None
        call = next((one for one in _calls(value) if ast.unparse(one.args[0]) == name), None)
        if call is None:
            return None
        call.args[0] = listed
        self.taken.append(name)
        return second


def _is_read_outside(node: ast.AST, step: str) -> bool:
    """Whether a name is read outside of loops that give it their steps."""
    match node:
        case ast.For(target=ast.Name(id=name)) if name == step:
            return any(_is_read_outside(one, step) for one in (node.iter, *node.orelse))
        case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=name), iter=over), *_]) if name == step:
            return _is_read_outside(over, step)
        case ast.Name(id=name, ctx=ast.Load()):
            return name == step
    return any(_is_read_outside(one, step) for one in ast.iter_child_nodes(node))


def _read(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]


@dataclass(slots=True)
class _Taking(ast.NodeTransformer):
    """Changes lists that are taken for tensors.

    Attributes:
        named: names that stand for such lists alone.
        lists: how many there are.
    """

    named: frozenset[str] = frozenset()
    lists: int = 0

    @classmethod
    def of(cls, function: ast.FunctionDef) -> _Taking:
        """What there is to change in a function."""
        given: dict[str, list[ast.expr | None]] = {}
        for one in ast.walk(function):
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    given.setdefault(name, []).append(value)
                case ast.arg(arg=name):
                    given.setdefault(name, []).append(None)
        stored = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and type(one.ctx) is not ast.Load]
        loads = _read(function)
        wholes = [whole for call in _calls(function) if (whole := _whole(_argument(call))) is not None]
        taken = [whole.id for whole in (*wholes, *_counted(function)) if isinstance(whole, ast.Name)]
        named = {
            name
            for name, values in given.items()
            if len(values) == stored.count(name) == 1
            and isinstance(values[0], ast.ListComp)
            and _is_of_numbers(values[0])
            and loads.count(name) == taken.count(name)
        }
        direct = [_argument(call) for call in _calls(function)]
        lists = sum(_is_of_numbers(one) for one in direct if one is not None) + len(named)
        lists += sum(map(_is_legacy, _calls(function)))
        return cls(frozenset(named), lists)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A list under a name."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.ListComp() as value) if name in self.named:
                node.value = _listed(value)
                return ast.fix_missing_locations(node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What makes a tensor of a list."""
        self.generic_visit(node)
        given = _argument(node) if _is_taking(node) else None
        whole = _whole(given)
        is_named = isinstance(whole, ast.Name) and whole.id in self.named
        if given is None or not (is_named or _is_legacy(node) or _is_of_numbers(given)):
            return node
        made = _listed(given) if not is_named and _is_of_numbers(given) else given
        call = ast.Call(ast.Name(TAKEN, ast.Load()), [node.func, made, *node.args[1:]], node.keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(function) if isinstance(one, ast.Call) and _is_taking(one))


def _is_taking(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _TAKING and bool(call.args)


def _is_legacy(call: ast.Call) -> bool:
    """Whether a list of sizes may be taken by a type, which would make numbers of them: `torch.IntTensor([n] * b)`."""
    assert isinstance(call.func, ast.Attribute)
    given = call.args[0]
    of = given.left if isinstance(given, ast.BinOp) else given
    return call.func.attr in _LEGACY and isinstance(of, ast.List) and len(call.args) == 1


def _argument(call: ast.Call) -> ast.expr | None:
    """What a tensor is made of; of a list that is turned round by a slice the whole."""
    return call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None


def _counted(function: ast.AST) -> Iterator[ast.expr]:
    """What is asked for its length."""
    for one in ast.walk(function):
        match one:
            case ast.Call(func=ast.Name(id="len"), args=[whole], keywords=[]):
                yield whole


def _whole(node: ast.expr | None) -> ast.expr | None:
    """The list that something is, or of which it is the list turned round."""
    return node if node is None else _turned(node) or node


def _turned(node: ast.expr) -> ast.expr | None:
    """The list of which `[::-1]` is taken; None elsewhere."""
    match node:
        case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=step)) if (
            step is not None and ast.unparse(step) == "-1"
        ):
            return value
    return None


def _is_of_numbers(node: ast.expr) -> bool:
    """Whether a list is made of a range, and its elements of nothing but arithmetic, calls and such lists."""
    whole = _turned(node)
    if whole is not None:
        return _is_of_numbers(whole)
    if not isinstance(node, ast.ListComp) or len(node.generators) != 1:
        return False
    (loop,) = node.generators
    is_range = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"
    if not is_range or loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name):
        return False
    if any(isinstance(one, ast.ListComp) and not _is_of_numbers(one) for one in ast.walk(node.elt)):
        return False
    calls = [one for one in ast.walk(node.elt) if isinstance(one, ast.Call)]
    if any(one.keywords or any(isinstance(each, ast.Starred) for each in one.args) for one in calls):
        return False
    return all(isinstance(one, _ELEMENTS) for one in ast.walk(node.elt))


def _listed(node: ast.expr) -> ast.expr:
    """The list as a call."""
    whole = _turned(node)
    if whole is not None:
        assert isinstance(node, ast.Subscript)
        node.value = _listed(whole)
        return node
    assert isinstance(node, ast.ListComp)
    (loop,) = node.generators
    assert isinstance(loop.target, ast.Name)
    element = _Elements().visit(copy.deepcopy(node.elt))
    return ast.copy_location(
        ast.Call(ast.Name(LISTED, ast.Load()), [_function(element, loop.target.id), loop.iter], []), node
    )


def _function(element: ast.expr, *names: str) -> ast.Lambda:
    arguments = [ast.arg(arg=name) for name in names]
    return ast.Lambda(
        ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[]), element
    )


class _Elements(ast.NodeTransformer):
    """An element whose parts may be tensors of numbers."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A function of numbers."""
        self.generic_visit(node)
        return ast.copy_location(ast.Call(ast.Name(CALLED, ast.Load()), [node.func, *node.args], []), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A choice."""
        self.generic_visit(node)
        sides = [_function(node.body), _function(node.orelse)]
        return ast.copy_location(ast.Call(ast.Name(CHOSEN, ast.Load()), [node.test, *sides], []), node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A list as an element, whose own range is no function of numbers."""
        return _listed(node)
