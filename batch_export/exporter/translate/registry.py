"""Which function translates which torch operator at which opset.

Arrives: nothing but the installed torchlib and the functions in `ops/`; a caller may register more. Leaves: a lookup
from a node's target to one function. The standard part is built once per process and never changed; what a caller adds
lives in that caller's `OnnxRegistry` alone.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import onnxscript
import torch
from onnxscript import values

from batch_export.errors import TranslationError
from batch_export.exporter.graph.opsets import HIGHEST_OPSET, TORCHLIB_OPSET
from batch_export.exporter.graph.recorder import PythonTranslation
from batch_export.exporter.translate.fitting_types import first_fitting
from batch_export.exporter.translate.targets import require_operator

if TYPE_CHECKING:
    from batch_export.exporter.ops.marking import Obstacle

PREFERENCES = ("auto", "always", "never")
"""What `prefer_native` may be."""

# Torchlib's versions of these need ONNX features that get in the way (SequenceMap bodies, truth of tensors), or lose
# what torch keeps (the logarithm of a determinant that overflows); torch's own decompositions say the same with others.
_SHADOWED = frozenset(
    {
        "aten::atleast_1d.Sequence",
        "aten::atleast_2d.Sequence",
        "aten::atleast_3d.Sequence",
        "aten::hstack",
        "aten::vstack",
        "aten::allclose",
        "aten::is_nonzero",
        "aten::unbind.int",
        "aten::amax",
        "aten::amin",
        "aten::logdet",
    }
)


@dataclass(frozen=True, slots=True)
class ONNXFunction:
    """One translation.

    Attributes:
        name: qualified name of the torch operator, e.g. `aten::add.Tensor` (the `default` overload is left out).
        function: the onnxscript function.
        is_complex: whether it takes complex tensors (as `float[..., 2]`).
        lowest_opset: the first opset at which it may be used.
        origin: `torchlib`, `batch_export` or `custom`.
        native: the ONNX operator that it writes the torch operator as, where there are other ways; else empty.
        obstacle: from the operator's arguments to what speaks against that, if anything does.
    """

    name: str
    function: object
    is_complex: bool = False
    lowest_opset: int = TORCHLIB_OPSET
    origin: str = "torchlib"
    native: str = ""
    obstacle: Callable[..., Obstacle | None] | None = None


def qualified_name(target: object) -> str:
    """`aten::add.Tensor` for an operator overload, `_operator::mul` or `math::ceil` for a Python function."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target.name()).removesuffix(".default")
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", "") or ""
    return f"{module}::{getattr(target, '__name__', str(target))}"


def as_onnx_function(function: Any) -> object:
    """Wraps a plain Python function written with onnxscript operators; onnxscript functions pass through."""
    if isinstance(function, (values.TracedOnnxFunction, values.OnnxFunction)):
        return function
    if callable(function):
        plain = function if isinstance(function, types.FunctionType) else _as_plain(function)
        return PythonTranslation(values.Opset("pkg.batch_export", 1), plain)
    raise TypeError(f"a translation is an onnxscript function or a Python function, not {type(function).__name__}")


def _as_plain(called: Callable[..., object]) -> types.FunctionType:
    """A function, which onnxscript can look at, that calls an object, a partial function or an operator of an opset."""

    def translation(*args: object, **kwargs: object) -> object:
        return called(*args, **kwargs)

    return cast("types.FunctionType", translation)


@functools.cache
def standard_functions() -> Mapping[str, tuple[ONNXFunction, ...]]:
    """Torchlib's functions and ours by qualified name, ours first and newest opset first."""
    import onnxscript.function_libs.torch_lib.ops  # noqa: F401  # lazy: fills torchlib's registry, which is slow
    from onnxscript.function_libs.torch_lib import registration

    from batch_export.exporter import ops  # lazy: our translations are loaded with torchlib's
    from batch_export.exporter.ops.marking import marked_function

    table: dict[str, list[ONNXFunction]] = {}
    for lowering in ops.lowerings():
        for name in lowering.names:
            table.setdefault(name, []).append(
                ONNXFunction(
                    name,
                    marked_function(lowering.function),
                    lowering.is_complex,
                    lowering.opset,
                    "batch_export",
                    lowering.native,
                    lowering.obstacle,
                )
            )
    for functions in table.values():
        functions.sort(key=lambda entry: -entry.lowest_opset)
    for name, overloaded in registration.default_registry.items():
        if name in _SHADOWED:
            continue
        for functions, is_complex in ((overloaded.overloads, False), (overloaded.complex, True)):
            for function in functions:
                table.setdefault(name, []).append(ONNXFunction(name, function, is_complex))
    return {name: tuple(functions) for name, functions in table.items()}


class OnnxRegistry:
    """Translations under one opset version; functions that a caller registers come before the standard ones.

    Args:
        opset_version: the ONNX opset that the exporter targets.
        prefer_native: whether operators that newer opsets have whole (`Attention`, ...) are written as those: where
            that is known to run right (`auto`), `always`, or `never`.

    Raises:
        ValueError: if `prefer_native` is none of these.
    """

    def __init__(self, opset_version: int = HIGHEST_OPSET, prefer_native: str = "auto") -> None:
        if prefer_native not in PREFERENCES:
            raise ValueError(f"prefer_native={prefer_native!r}: choose {', '.join(PREFERENCES)}")
        self._opset_version = opset_version
        self._alike = (0, sys.maxsize)
        self._custom: dict[str, list[ONNXFunction]] = {}
        self.prefer_native = prefer_native

    def at(self, opset_version: int, prefer_native: str | None = None) -> OnnxRegistry:
        """A copy with the same custom functions that targets another opset."""
        copy = OnnxRegistry(opset_version, prefer_native or self.prefer_native)
        copy._custom = {name: list(entries) for name, entries in self._custom.items()}
        return copy

    @property
    def opset_version(self) -> int:
        """The ONNX opset that the exporter targets."""
        return self._opset_version

    @property
    def alike(self) -> tuple[int, int]:
        """The lowest and the highest opset at which everything that was asked so far has the same answer."""
        return self._alike

    @property
    def has_custom(self) -> bool:
        """Whether a caller registered translations."""
        return bool(self._custom)

    def is_own(self, target: object) -> bool:
        """Whether a caller registered a translation of a node's target."""
        return qualified_name(target) in self._custom

    def own_version(self) -> int:
        """The opset, for what depends on which it is."""
        self._alike = (self._opset_version, self._opset_version)
        return self._opset_version

    def reaches(self, version: int) -> bool:
        """Whether the opset is this one or a later one."""
        low, high = self._alike
        if version <= self._opset_version:
            self._alike = (max(low, version), high)
            return True
        self._alike = (low, min(high, version - 1))
        return False

    def _may_use(self, entry: ONNXFunction) -> bool:
        """Whether a translation's operators are there; a file below torchlib's opset is brought down afterwards."""
        return entry.lowest_opset <= TORCHLIB_OPSET or self.reaches(entry.lowest_opset)

    def register_op(
        self,
        function: onnxscript.OnnxFunction[..., Any] | onnxscript.values.TracedOnnxFunction | Callable[..., object],
        namespace: str,
        op_name: str,
        overload: str | None = None,
        is_complex: bool = False,
    ) -> None:
        """Registers a translation of `torch.ops.<namespace>.<op_name>.<overload>`; the newest one is used.

        Raises:
            ValueError: if the names do not form a `namespace::name`.
        """
        name = _join(namespace, op_name, overload)
        entry = ONNXFunction(name, as_onnx_function(function), is_complex, self._opset_version, "custom")
        self._custom.setdefault(name, []).append(entry)

    def register_target(
        self, target: object, functions: Callable[..., object] | Sequence[Callable[..., object]]
    ) -> None:
        """Registers translations of a target, e.g. `torch.ops.aten.stft.default`.

        Of a list the first one is used whose annotations allow the element types of a call.

        Raises:
            TypeError: the target is no operator, or a translation cannot be called.
        """
        require_operator(target)
        name = qualified_name(target)
        listed = list(functions) if isinstance(functions, (list, tuple)) else [functions]
        wrong = next((one for one in listed if not callable(one)), None)
        if wrong is not None or not listed:
            raise TypeError(f"custom_translation_table: {name} has no function to call, but {wrong or functions!r}")
        for function in reversed(listed):
            entry = ONNXFunction(name, as_onnx_function(function), False, self._opset_version, "custom")
            self._custom.setdefault(name, []).append(entry)

    def is_registered_op(self, namespace: str, op_name: str, overload: str | None = None) -> bool:
        """Whether `torch.ops.<namespace>.<op_name>.<overload>` has a translation."""
        return self.get_op_functions(namespace, op_name, overload) is not None

    def get_op_functions(self, namespace: str, op_name: str, overload: str | None = None) -> list[ONNXFunction] | None:
        """The translations of an operator, standard ones first, custom ones in order of registration; None if none."""
        name = _join(namespace, op_name, overload)
        found = [entry for entry in standard_functions().get(name, ()) if self._may_use(entry)] + self._custom.get(
            name, []
        )
        return found or None

    def lookup(
        self,
        target: object,
        *,
        is_complex: bool = False,
        native: bool | None = None,
        is_refused: Callable[[ONNXFunction], bool] | None = None,
    ) -> ONNXFunction | None:
        """The translation used for a node's target, or None.

        Args:
            target: the node's target.
            is_complex: whether it takes complex tensors here.
            native: False leaves out those that write it as ONNX's operator of that name; None: as `prefer_native` says.
            is_refused: leaves out others.
        """
        native = self.prefer_native != "never" if native is None else native
        name = qualified_name(target)
        if own := self._own(name, is_complex):
            return own[0]
        for entry in standard_functions().get(name, ()):
            fits = entry.is_complex == is_complex and (native or not entry.native)
            if fits and not (is_refused and is_refused(entry)) and self._may_use(entry):
                return entry
        return None

    def _own(self, name: str, is_complex: bool) -> list[ONNXFunction]:
        """The translations that a caller registered, in the order of preference."""
        own = reversed(self._custom.get(name, ()))
        return [entry for entry in own if not is_complex or entry.is_complex or not self._has_real_variant(name)]

    def lookup_for(
        self, target: object, args: Sequence[object], kwargs: Mapping[str, object], *, is_complex: bool = False
    ) -> ONNXFunction | None:
        """The translation used for a node's target with these arguments (values and numbers), or None.

        Raises:
            TranslationError: if native operators are always wanted, and this one has no native form here.
        """

        def is_refused(entry: ONNXFunction) -> bool:  # at this opset and at every other
            if self.prefer_native != "auto" or entry.obstacle is None:
                return False
            return entry.obstacle(*args, **kwargs) is not None

        found = self.lookup(target, is_complex=is_complex, is_refused=is_refused)
        if found is not None and found.origin == "custom":
            own = self._own(qualified_name(target), is_complex)
            return first_fitting([(entry, entry.function) for entry in own], args, kwargs)
        if found is None or found.obstacle is None:
            if self.prefer_native == "always" and (found is None or found.origin != "custom"):
                self._require_no_later(target)
            return found
        obstacle = found.obstacle(*args, **kwargs)
        if obstacle is None:
            return found
        if self.prefer_native != "always":
            return self.lookup(target, is_complex=is_complex, native=False)
        if obstacle.formal:
            raise TranslationError(
                f"it cannot be written as ONNX's {found.native}, which prefer_native='always' asks for: "
                f"{obstacle.reason}",
                next_step="pass prefer_native='auto'",
            )
        return found

    def _require_no_later(self, target: object) -> None:
        for entry in standard_functions().get(qualified_name(target), ()):
            if entry.native and not self.reaches(entry.lowest_opset):
                raise TranslationError(
                    f"ONNX's {entry.native}, which prefer_native='always' asks for, does not exist at opset "
                    f"{self._opset_version}",
                    next_step=f"pass opset_version={entry.lowest_opset} or a higher one, or prefer_native='auto'",
                )

    def _has_real_variant(self, name: str) -> bool:
        return any(entry.is_complex for entry in self._custom.get(name, ()))


def _join(namespace: str, op_name: str, overload: str | None) -> str:
    if not namespace or not op_name or "::" in namespace or "::" in op_name:
        raise ValueError(f"an operator is named by a namespace and a name, not {namespace!r} and {op_name!r}")
    name = f"{namespace}::{op_name}"
    return name if overload in (None, "", "default") else f"{name}.{overload}"
