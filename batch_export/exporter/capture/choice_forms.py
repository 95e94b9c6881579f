"""Which small `if` may be a choice of values: both sides only compute, and give names what they compute.

Arrives: an `if`. Leaves: whether it is one, and the names that its sides give values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from batch_export.exporter.capture.choice_effects import AS_PART, Effects

_COMPUTING = frozenset(
    (
        *(
            "abs",
            "add",
            "sub",
            "mul",
            "neg",
            "sign",
            "square",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "exp",
            "expm1",
            "log",
            "log1p",
        ),
        *("sin", "cos", "tan", "tanh", "sigmoid", "relu", "gelu", "silu", "elu", "softplus", "leaky_relu", "erf"),
        *("round", "floor", "ceil", "trunc", "clamp", "clip", "clamp_min", "clamp_max", "hypot", "atan2", "lerp"),
        *("maximum", "minimum", "max", "min", "amax", "amin", "sum", "mean", "prod", "std", "var", "norm", "normalize"),
        *("softmax", "log_softmax", "cumsum", "dot", "matmul", "mm", "bmm", "mv", "outer", "argmax", "argmin"),
        *("any", "all", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not", "where"),
        *("eq", "ne", "lt", "le", "gt", "ge", "cat", "stack", "zeros_like", "ones_like"),
        *("full_like", "clone", "nan_to_num", "tril", "triu", "roll", "flip"),
    )
)
"""Functions and methods whose results have memory of their own, and that fail at no numbers."""
_MAKING = frozenset(("zeros", "ones", "full", "tensor", "new_zeros", "new_ones", "new_full", "new_tensor"))
"""The same of those that make tensors of numbers, and may fail at sizes that are computed (`zeros(n - 3)`)."""
_TURNING = frozenset(
    (
        *("view", "reshape", "flatten", "unsqueeze", "squeeze", "transpose", "permute", "t", "expand", "expand_as"),
        *("float", "double", "half", "long", "int", "bool", "to", "type_as", "detach", "contiguous", "size", "dim"),
    )
)
"""Those whose results may share the memory of what they are called with."""
_PLAIN = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Tuple, ast.List),
    *(ast.IfExp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context, ast.keyword),
)
"""Expressions that only compute, if their parts do."""


def is_choice(node: ast.If) -> bool:
    """Whether both sides only give names values, each of them by assignments or by `+=` and the like."""
    node = Effects.of(node).node
    parts = [*statements(node)]
    inner = [part for one in (*node.body, *node.orelse) if isinstance(one, ast.If) for part in statements(one)]
    if not is_asked_alone(node.test) or not all(map(is_plain, parts)) or names_of(inner, ast.AugAssign):
        return False
    given, written = names_of(parts, ast.Assign), names_of(parts, ast.AugAssign)
    return bool(given | written) and not given & written


_ASKING = frozenset(("item", "tolist", "numel", "nelement", "equal", "allclose", "isclose", "is_floating_point", "get"))
"""Functions and methods that do nothing but answer, besides those that compute."""
_ANSWERING = frozenset(("abs", "all", "any", "bool", "float", "int", "isinstance", "len", "max", "min", "round", "sum"))
"""The same of Python's own."""


def is_asked_alone(test: ast.expr) -> bool:
    """Whether nothing is done by what an `if` asks that Python would not do: each part of `a and b` is worked out."""
    nodes = [*ast.walk(test)]
    if any(isinstance(one, (ast.NamedExpr, ast.Await)) for one in nodes):
        return False
    return not is_in_parts(test) or all(_answers(one) for one in nodes if isinstance(one, ast.Call))


def is_in_parts(test: ast.expr) -> bool:
    """Whether Python asks a question in parts, of which a later one may not be worked out."""
    return any(
        isinstance(one, (ast.BoolOp, ast.IfExp)) or (isinstance(one, ast.Compare) and len(one.ops) > 1)
        for one in ast.walk(test)
    )


def _answers(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=name):
            return name in _ASKING | _COMPUTING | _TURNING
        case ast.Name(id=name):
            return name in _ANSWERING
    return False


def statements(node: ast.If) -> Iterator[ast.AST]:
    """The statements of both sides and of choices within them, and what those ask."""
    for one in (*node.body, *node.orelse):
        if isinstance(one, ast.If):
            yield one.test
            yield from statements(one)
        else:
            yield one


def is_plain(node: ast.AST) -> bool:
    """Whether a statement only gives names values, or an expression only computes."""
    match node:
        case ast.Pass():
            return True
        case ast.Assign(targets=[target], value=value):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return all(isinstance(one, ast.Name) for one in names) and is_plain(value)
        case ast.AugAssign(target=ast.Name(), value=value):
            return is_plain(value)
        case ast.Call(func=ast.Attribute(value=of, attr=name), args=args, keywords=keywords):
            sizes = args if name.endswith(("zeros", "ones")) else args[:1]
            is_known = name in _COMPUTING | _TURNING or (name in _MAKING and all(map(_is_told, sizes)))
            is_known &= _root(of) != "self"
            is_known &= all(one.arg not in (None, "out", "inplace", "rounding_mode") for one in keywords)
            return is_known and all(map(is_plain, (of, *args, *(one.value for one in keywords))))
        case ast.Call(func=ast.Name(id=name), args=args) if name == AS_PART:
            return all(map(is_plain, args))
        case ast.Call(func=ast.Name(id="abs" | "max" | "min" | "float" | "bool"), args=args, keywords=[]):
            return all(map(is_plain, args))
        case ast.Subscript(value=value, slice=place, ctx=ast.Load()):
            places = place.elts if isinstance(place, ast.Tuple) else [place]
            return is_plain(value) and all(map(is_known_place, places))
        case _ if isinstance(node, _PLAIN):
            return all(map(is_plain, ast.iter_child_nodes(node)))
    return False


def may_share(value: ast.expr) -> bool:
    """Whether what a side gives a name may share memory with something else: a name, a part, a view."""
    match value:
        case ast.Tuple(elts=values):
            return any(map(may_share, values))
        case ast.Call(func=ast.Attribute(attr=name)):
            return name not in _COMPUTING | _MAKING
        case ast.Call(func=ast.Name(id=name)):
            return name not in (AS_PART, "float", "bool")
        case ast.IfExp(body=one, orelse=other):
            return may_share(one) or may_share(other)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return False
    return True


def attributes(parts: Iterable[ast.AST]) -> set[str]:
    """Attributes of objects that statements read (`self.state`), as source; methods are none."""
    nodes = [one for part in parts for one in ast.walk(part)]
    called = {id(one.func) for one in nodes if isinstance(one, ast.Call)}
    found = (one for one in nodes if isinstance(one, ast.Attribute) and id(one) not in called)
    return {ast.unparse(one) for one in found if all(isinstance(each, _OF_NAMES) for each in ast.walk(one))}


def called_of(parts: Iterable[ast.AST]) -> set[tuple[str, str]]:
    """What methods and functions are called of, as source, with their names; of Python's own with no name.

    `x` of `x.add(1)` and of `x[0].add(1)`, `F` of `F.relu(x)`, `max` of `max(x, y)`.
    """
    found: set[tuple[str, str]] = set()
    for call in (one for part in parts for one in ast.walk(part) if isinstance(one, ast.Call)):
        of, name = (call.func.value, call.func.attr) if isinstance(call.func, ast.Attribute) else (call.func, "")
        while isinstance(of, ast.Subscript):
            of = of.value
        if all(isinstance(each, _OF_NAMES) for each in ast.walk(of)) and ast.unparse(of) != AS_PART:
            found.add((ast.unparse(of), name))
    return found


_OF_NAMES = (ast.Attribute, ast.Name, ast.expr_context)


def _root(node: ast.expr) -> str:
    """The name that an expression begins with."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_told(sizes: ast.expr) -> bool:
    """Whether sizes, or numbers, stand there as they are."""
    told = (ast.Constant, ast.Tuple, ast.List, ast.Attribute, ast.Subscript, ast.Name, ast.expr_context)
    return all(isinstance(one, told) for one in ast.walk(sizes))


def is_known_place(node: ast.expr) -> bool:
    """Whether an index is a number, a name, arithmetic of such, or a slice; `choice_values.py` keeps tensors within."""
    if isinstance(node, ast.Slice):
        return all(one is None or is_known_place(one) for one in (node.lower, node.upper, node.step))
    return all(
        isinstance(one, (ast.Name, ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context))
        for one in ast.walk(node)
    )


def handed_on(parts: Iterable[ast.AST]) -> set[str]:
    """Names whose memory another name may have behind an assignment."""
    values = [one.value for part in parts for one in ast.walk(part) if isinstance(one, ast.Assign)]
    copied = {id(one) for value in values if _is_as_part(value) for one in ast.walk(value)}
    names = (one for value in values for one in ast.walk(value) if isinstance(one, ast.Name))
    return {one.id for one in names if id(one) not in copied}


def _is_as_part(value: ast.expr) -> bool:
    """Whether a value is written to a place, behind which it has memory of its own."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == AS_PART


def names_of(parts: Iterable[ast.AST], kind: type[ast.stmt]) -> set[str]:
    """The names that statements of a kind give values."""
    targets = (one for part in parts if isinstance(part, kind) for one in ast.walk(part))
    return {one.id for one in targets if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
