"""Powers of complex numbers, stored as pairs of real ones, as C computes them: exp(w log z).

For infinities, zeros and NaN the logarithm, the product and the exponential are each what C99's annex G makes of them,
which eager's powers come from: the product of `a + bi` and `c + di` is infinite where one of the two is, though both
of its parts are NaN by the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import is_pair, paired
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue
from batch_export.exporter.ops import complex_formulas as formulas
from batch_export.exporter.ops.complex_formulas import Parts
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering

_POWERS: Mapping[complex, Callable[[Parts], Parts]] = {
    0.5: formulas.sqrt,
    -0.5: lambda z: formulas.inverse(formulas.sqrt(z)),
    -1.0: formulas.inverse,
    2.0: lambda z: formulas.times(z, z),
    3.0: lambda z: formulas.times(formulas.times(z, z), z),
    -2.0: lambda z: formulas.inverse(formulas.times(z, z)),
}


@lowering("aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar", "aten::pow.Scalar", "prims::pow", is_complex=True)
def power(self: ComplexNumber, exponent: ComplexNumber) -> RecordedValue:
    """exp(w log z), as C computes it; the number 0 as exponent gives 1."""
    like = self if is_pair(self) else exponent
    assert isinstance(like, ir.Value)
    if not isinstance(exponent, ir.Value) and exponent == 0:
        return op.Expand(paired(1.0, like), op.Shape(like))
    if not isinstance(exponent, ir.Value) and (simple := _POWERS.get(complex(exponent))) is not None:
        return formulas.function_of(like, simple)  # as eager, which loses no zero and no infinity there
    z, w = formulas.parts_of(paired(self, like)), formulas.parts_of(paired(exponent, like))
    return formulas.pairs_of(formulas.exp(_times(w, formulas.log(z))), like)


def _times(z: Parts, w: Parts) -> Parts:
    """The product: infinite where one of the two is, and where its terms are, in the direction that they give."""
    (a, b), (c, d) = z, w
    real, imaginary = formulas.times(z, w)
    nothing, infinite = number(0.0), number(math.inf)
    first, second = (op.Or(op.IsInf(one[0]), op.IsInf(one[1])) for one in (z, w))
    terms = [op.IsInf(op.Mul(one, other)) for one, other in ((a, c), (b, d), (a, d), (b, c))]
    is_lost = op.And(op.IsNaN(real), op.IsNaN(imaginary))
    is_infinite = op.And(
        is_lost, op.Or(op.Or(first, second), op.Or(op.Or(terms[0], terms[1]), op.Or(terms[2], terms[3])))
    )

    def ends(part: RecordedValue, is_one: RecordedValue) -> RecordedValue:
        """1 or -1 for infinities and 0 for what stands beside one; elsewhere a number as it is, and 0 for NaN."""
        end = op.Where(op.IsInf(part), op.Sign(part), nothing)
        return op.Where(is_one, end, op.Where(op.IsNaN(part), nothing, part))

    a, b, c, d = ends(a, first), ends(b, first), ends(c, second), ends(d, second)
    across = formulas.times((a, b), (c, d))
    return (
        op.Where(is_infinite, op.Mul(infinite, across[0]), real),
        op.Where(is_infinite, op.Mul(infinite, across[1]), imaginary),
    )
