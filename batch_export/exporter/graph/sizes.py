"""Symbolic sizes: from torch's symbols to axis names for people, and to ONNX scalars for the graph.

Arrives: SymInts and the values in whose shapes their symbols appear. Leaves: `ir.Shape`s with readable axis names, and
int64 scalars that compute an expression when the model runs. Scopes nest: what is computed inside the body of an `If`
is not visible outside.
"""

from __future__ import annotations

import contextlib
import types
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.utils._sympy import functions as torch_sympy
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from batch_export.errors import TranslationError
from batch_export.exporter.graph import python_integers
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.graph.recorder import Recorder

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
"""A number of torch's that is known only when the model runs."""


def expression(size: Symbolic) -> sympy.Basic:
    """The sympy expression of a SymInt, SymFloat or SymBool."""
    return size.node.expr


def _length_by_data(size: torch.SymInt) -> sympy.Symbol | None:
    """The symbol of a length that goes by the data and that torch takes for another size.

    Where the two are broadcast it may be 1 as well, which torch leaves to an assertion: what reads a declared shape
    must not take it for the other size.
    """
    own = getattr(size.node, "_expr", None)
    if not isinstance(own, sympy.Symbol) or not symbol_is_type(own, SymT.UNBACKED_INT):
        return None
    return None if free_unbacked_symbols(size) else own


class Sizes:
    """The symbols of one program.

    Args:
        recorder: where scalars are computed.
        axis_names: torch's symbol (`s17`) -> the name that the user gave (`batch`).
        lowest: torch's symbol -> the least size that was declared for the axis, 0 for none.
    """

    def __init__(
        self,
        recorder: Recorder,
        axis_names: Mapping[str, str],
        lowest: Mapping[str, int] = types.MappingProxyType({}),
    ) -> None:
        self._recorder = recorder
        self._lowest = lowest if any(lowest.values()) else {}
        self._names = dict(axis_names)
        self._environment: ShapeEnv | None = None
        self._values: ChainMap[sympy.Basic, ir.Value] = ChainMap()
        self._sources: ChainMap[str, tuple[ir.Value, int]] = ChainMap()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Forgets, at its end, what was computed inside."""
        values, sources = self._values, self._sources
        self._values, self._sources = values.new_child(), sources.new_child()
        try:
            yield
        finally:
            self._values, self._sources = values, sources

    def text(self, size: torch.SymInt) -> str:
        """An expression with axis names in place of torch's symbols, e.g. `past + seq`."""
        expr = expression(size)
        if isinstance(expr, sympy.Symbol):
            return str(self._names.get(expr.name, expr.name))
        by_name = {symbol: sympy.Symbol(self._names.get(symbol.name, symbol.name)) for symbol in expr.free_symbols}
        return str(expr.xreplace(by_name))

    def shape(self, sizes: Sequence[int | torch.SymInt]) -> ir.Shape:
        """The ONNX shape of a torch shape: integers stay, symbols become axis names."""
        dims: list[int | str] = []
        for size in sizes:
            if isinstance(size, torch.SymInt) and (by_data := _length_by_data(size)) is not None:
                dims.append(by_data.name)
            elif isinstance(size, torch.SymInt) and not expression(size).is_number:
                dims.append(text := self.text(size))
                if self._lowest and text not in self._recorder.never_empty and self._is_positive(expression(size)):
                    self._recorder.never_empty.add(text)
            else:
                dims.append(int(size))
        return ir.Shape(dims)

    def _is_positive(self, expr: sympy.Basic) -> bool:
        """Whether an expression is 1 or more wherever the axes have the sizes that were declared."""
        symbols = [symbol for symbol in expr.free_symbols if symbol.name in self._lowest]
        ranges = {symbol: ValueRanges(self._lowest[symbol.name], int_oo) for symbol in symbols}
        return len(symbols) == len(expr.free_symbols) and bool(bound_sympy(expr, ranges).lower >= 1)

    def declared(self, size: Symbolic) -> Number | None:
        """What a number is wherever axes have the sizes that were declared: an integer, or the size of one axis.

        `min(1, n)` is 1 of an axis declared from 1 on. None where that says nothing.
        """
        expr = expression(size)
        symbols = expr.free_symbols
        if isinstance(expr, sympy.Symbol) or not symbols or not all(self._lowest.get(one.name) for one in symbols):
            return None
        if not expr.has(torch_sympy.Min, torch_sympy.Max, sympy.Min, sympy.Max):
            return None
        above = {one: sympy.Dummy(one.name, integer=True, nonnegative=True) for one in symbols}
        shifted = expr.xreplace({one: above[one] + self._lowest[one.name] for one in symbols})
        plain = shifted.replace(torch_sympy.Min, sympy.Min).replace(torch_sympy.Max, sympy.Max)
        found = sympy.expand(plain.xreplace({above[one]: one - self._lowest[one.name] for one in symbols}))
        return self._emit(found) if found.is_Integer or found in symbols else None

    def may_be(self, symbol: sympy.Symbol, size: int) -> bool:
        """Whether an axis may have a size, as far as its least one was declared."""
        return self._lowest.get(symbol.name, 0) <= size

    def learn(self, value: ir.Value, sizes: Sequence[int | torch.SymInt]) -> None:
        """Remembers in which axis of which value each plain symbol can be read."""
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                expr = expression(size)
                if isinstance(expr, sympy.Symbol) and expr.name not in self._sources:
                    self._sources[expr.name] = (value, axis)

    def learn_scalar(self, size: Symbolic, value: ir.Value) -> None:
        """Remembers the ONNX scalar that holds an expression."""
        expr = expression(size)
        if not expr.is_number and expr not in self._values:
            self._values[expr] = value

    def scalar(self, size: Symbolic) -> ir.Value | int | float | bool:
        """An ONNX scalar (or the plain number) with the value of a SymInt, SymFloat or SymBool.

        Raises:
            TranslationError: if the expression has a function that ONNX arithmetic does not cover here.
        """
        self._environment = size.node.shape_env
        result: ir.Value | int | float | bool = self._emit(expression(size))
        return result

    def _symbolic(self, expr: sympy.Basic) -> int | torch.SymInt:
        if expr.is_Integer:
            return int(expr)
        assert self._environment is not None
        return self._environment.create_symintnode(expr, hint=None)

    def _emit(self, expr: sympy.Basic) -> Number:
        if expr.is_Integer:
            return int(expr)
        if expr.is_number and expr.is_real:
            return float(expr)
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        known = self._values.get(expr)
        if known is not None:
            return known
        value = self._compute(expr)
        if isinstance(value, ir.Value):
            if value.shape is None:
                value.shape = ir.Shape([])
            self._values[expr] = value
        return value

    def _compute(self, expr: sympy.Basic) -> Number:
        if isinstance(expr, sympy.Symbol):
            source = self._sources.get(expr.name)
            if source is None:
                raise TranslationError(f"the size {self._names.get(expr.name, expr.name)} is in no tensor's shape")
            value, axis = source
            size = op.Shape(value, start=axis, end=axis + 1)
            return op.Reshape(size, self._recorder.constant([], ir.DataType.INT64))
        operands = [self._emit(operand) for operand in expr.args]
        if isinstance(expr, sympy.Add):
            return self._chain(op.Add, operands)
        if isinstance(expr, sympy.Mul):
            return self._chain(op.Mul, operands)
        if isinstance(expr, sympy.Abs):
            return op.Abs(operands[0])
        if isinstance(expr, (sympy.Pow, torch_sympy.PowByNatural)) and isinstance(operands[1], int) and operands[1] > 0:
            return self._chain(op.Mul, [operands[0]] * operands[1])
        if isinstance(expr, torch_sympy.CleanDiv):
            return op.Div(operands[0], operands[1])
        if isinstance(expr, torch_sympy.FloorDiv):
            if python_integers.rounds_alike(*(self._symbolic(operand) for operand in expr.args)):
                return op.Div(operands[0], operands[1])
            return python_integers.floor_quotient(operands[0], operands[1])
        if isinstance(expr, (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod)):
            return op.Mod(operands[0], operands[1])
        if isinstance(expr, (torch_sympy.Max, sympy.Max)):
            return self._chain(op.Max, operands)
        if isinstance(expr, (torch_sympy.Min, sympy.Min)):
            return self._chain(op.Min, operands)
        if isinstance(expr, torch_sympy.ToFloat):
            return self._double(operands[0])
        if isinstance(expr, (torch_sympy.IntTrueDiv, torch_sympy.FloatTrueDiv)):
            return op.Div(self._double(operands[0]), self._double(operands[1]))
        if isinstance(expr, torch_sympy.TruncToInt):
            return op.Cast(operands[0], to=ir.DataType.INT64)
        if isinstance(expr, torch_sympy.CeilToInt):
            return op.Cast(op.Ceil(operands[0]), to=ir.DataType.INT64)
        if isinstance(expr, torch_sympy.FloorToInt):
            return op.Cast(op.Floor(operands[0]), to=ir.DataType.INT64)
        comparisons = {
            sympy.Eq: op.Equal,
            sympy.Lt: op.Less,
            sympy.Le: op.LessOrEqual,
            sympy.Gt: op.Greater,
            sympy.Ge: op.GreaterOrEqual,
        }
        for kind, compare in comparisons.items():
            if isinstance(expr, kind):
                return compare(*operands)
        if isinstance(expr, sympy.Ne):
            return op.Not(op.Equal(*operands))
        raise TranslationError(f"the size expression {expr} has no ONNX arithmetic ({type(expr).__name__})")

    def _double(self, operand: Number) -> ir.Value:
        """With the precision of Python's numbers: a size computed in float32 may be off by one."""
        if isinstance(operand, ir.Value):
            result: ir.Value = op.Cast(operand, to=ir.DataType.DOUBLE)
            return result
        return self._recorder.constant(float(operand), ir.DataType.DOUBLE)

    @staticmethod
    def _chain(operator: Callable[..., RecordedValue], operands: Sequence[Number]) -> Number:
        result = operands[0]
        for operand in operands[1:]:
            result = operator(result, operand)
        return result
