"""Functions by their source: the tree of a running function, and a code made of a tree that was changed.

Arrives: a function's code. Leaves: its tree, where its file still says what the code does; a code that may stand in the
function's place. Nothing is run.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType

from batch_export.exporter.capture.counted_pieces import over_places
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.returning_loops import left_by_break

_LAMBDA = "<lambda>"
_FUTURE = 0x1FF0000
"""The flags of a code by which its file's `from __future__` are known."""


def tree_of(code: CodeType) -> ast.FunctionDef | None:
    """A function as its file has it, with the lines that it has there; `compiled` asks whether that is still the code.

    Loops over pieces that are counted are loops over the places at which they begin, and a `break` leaves those that a
    `return` leaves.

    None where the file is not there. Of a code that was made here it is the tree that it was made of.
    """
    if id(code) in _MADE:
        return copy.deepcopy(_MADE[id(code)][1])
    made = _source(code)
    return None if made is None else left_by_break(over_places(made))


def is_current(code: CodeType) -> bool:
    """Whether a function's file still says what its code does: it may have changed since it was imported."""
    if id(code) in _MADE:
        return True
    made = _source(code)
    return made is not None and _is_same(_compiled(made, code, _asserts_of_pytest(code)), code)


def compiled(function: ast.FunctionDef, code: CodeType) -> CodeType | None:
    """The code of a changed function that can stand in the place of its own.

    None where there is none, or the file says something else by now.

    Args:
        function: its tree, which is changed.
        code: its own.
    """
    made = _compiled(function, code) if is_current(code) else None
    if made is not None:
        keep(made, function)
    return made


def keep(made: CodeType, function: ast.FunctionDef) -> None:
    """Notes the tree that a code was made of; the code lives on.

    Args:
        made: the code.
        function: the tree.
    """
    if len(_MADE) >= _MOST:
        _MADE.clear()
    _MADE[id(made)] = made, function


def _asserts_of_pytest(code: CodeType) -> Callable[[ast.Module], object] | None:
    """What pytest has made of the asserts of a test's file, where a code is of such a file; what was loaded with it."""
    rewriting = sys.modules.get("_pytest.assertion.rewrite")
    if rewriting is None or not any(name.startswith("@py") for name in code.co_names):
        return None
    return lambda tree: rewriting.rewrite_asserts(tree, b"")


def _compiled(
    function: ast.FunctionDef, code: CodeType, changed: Callable[[ast.Module], object] | None = None
) -> CodeType | None:
    function.decorator_list, function.returns = _first_line_kept(function), None
    for one in (*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs):
        one.annotation = None
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    outer_arguments = copy.deepcopy(nothing)
    outer_arguments.args = [ast.arg(arg=name) for name in code.co_freevars]
    own = (
        [] if function.name in code.co_freevars else [ast.Global([function.name])]
    )  # one of the file's, where it is read
    within: list[ast.stmt] = [*own, function]
    if _is_mangled(function) and (kind := _class_of(code)):
        within = [ast.ClassDef(name=kind, bases=[], keywords=[], body=within, decorator_list=[])]
    outer = ast.FunctionDef(name="__outer__", args=outer_arguments, body=within, decorator_list=[])
    tree = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    if changed is not None:
        changed(tree)
    try:
        whole = compile(tree, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    for part in codes_within(whole):
        if part.co_name == code.co_name and part.co_freevars == code.co_freevars:
            return _qualified(part, part.co_qualname, code.co_qualname)
    return None


def _qualified(code: CodeType, before: str, after: str) -> CodeType:
    """A code, and what is defined in it, by another qualified name; the code of a class has its own as a constant."""
    name = after + code.co_qualname.removeprefix(before)
    constants = (
        _qualified(one, before, after) if isinstance(one, CodeType) else name if one == code.co_qualname else one
        for one in code.co_consts
    )
    return code.replace(co_qualname=name, co_consts=tuple(constants))


def _first_line_kept(function: ast.FunctionDef) -> list[ast.expr]:
    """Nothing in the place of a function's decorators, which is never run: a code begins at the first one's line."""
    first = function.decorator_list[:1]
    return [ast.copy_location(ast.Constant(None), one) for one in first]


_MADE: dict[int, tuple[CodeType, ast.FunctionDef]] = {}
"""By a code's identity the codes that were made here, which have to live on, and the trees that they were made of."""
_MOST = 2048


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """The codes of the functions that a code defines, and of those that these define."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from codes_within(one)


def _source(code: CodeType) -> ast.FunctionDef | None:
    """A function as it is written, with the lines that it has in its file."""
    if code.co_name == _LAMBDA:
        return next((one for one in _lambdas(code) if _is_same(_compiled(copy.deepcopy(one), code), code)), None)
    try:
        text = inspect.getsource(code)
        is_inside = text[:1].isspace()
        tree = ast.parse(f"if True:\n{text}" if is_inside else text)  # strings over several lines stay as they are
    except (OSError, TypeError, SyntaxError):
        return None
    ast.increment_lineno(tree, code.co_firstlineno - 1 - is_inside)
    found = next((one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)), None)
    return found if found is not None and found.name == code.co_name else None


def _lambdas(code: CodeType) -> Iterator[ast.FunctionDef]:
    """Functions that return what the lambdas do which begin at a code's line."""
    tree = parsed(code.co_filename)
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, ast.Lambda) and one.lineno == code.co_firstlineno:
            own = copy.deepcopy(one)
            returned = ast.copy_location(ast.Return(own.body), own.body)
            made = ast.FunctionDef(name=_LAMBDA, args=own.args, body=[returned], decorator_list=[])
            yield ast.copy_location(made, one)


def _is_same(made: CodeType | None, code: CodeType) -> bool:
    """Whether a code does what another one does."""
    if made is None or made.co_varnames != code.co_varnames:
        return False
    steps, others = list(_steps(made)), list(_steps(code))
    return len(steps) == len(others) and all(map(_is_equal, steps, others))


def _steps(code: CodeType) -> Iterator[tuple[str, object]]:
    """What a code does, without what goes by how its file imports a name that it calls functions of.

    By that a code is longer or shorter, too, and jumps in it may need one more instruction for how far they go.
    """
    for one in dis.get_instructions(code):
        if one.opname not in ("PUSH_NULL", "PRECALL", "EXTENDED_ARG"):
            name = "LOAD_ATTR" if one.opname == "LOAD_METHOD" else one.opname
            yield name, None if one.opcode in dis.hasjrel else one.argval


def _is_equal(one: tuple[str, object], other: tuple[str, object]) -> bool:
    left, right = one[1], other[1]
    if isinstance(left, CodeType) and isinstance(right, CodeType):
        return _is_same(left, right)
    return one[0] == other[0] and type(left) is type(right) and _written(left) == _written(right)


def _written(constant: object) -> str:
    """A constant as text, which tells 0.0 from -0.0; a set's elements have no order."""
    return str(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _class_of(code: CodeType) -> str:
    """The class in which a function stands, which is part of the names of its own (`__name`); empty where in none."""
    *_, kind, _ = ("", *code.co_qualname.split("."))
    return "" if kind.startswith("<") else kind


def _is_mangled(function: ast.FunctionDef) -> bool:
    names = [one.id if isinstance(one, ast.Name) else one.attr for one in ast.walk(function) if _is_named(one)]  # type: ignore[attr-defined]
    return any(name.startswith("__") and not name.endswith("__") for name in names)


def _is_named(one: ast.AST) -> bool:
    return isinstance(one, (ast.Name, ast.Attribute))
