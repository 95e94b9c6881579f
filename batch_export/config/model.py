"""From a model's configuration (`conf/model/NAME.yaml`, as plain mappings) to its `ModelSpec`.

A name and a mapping arrive, a checked `ModelSpec` leaves, or a `UsageError` whose one sentence names the model, the key
and the nearest right word. The builder is not imported here (its arguments are checked when it is called), and torch
never is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from batch_export.axes import WORDS, input_names, size_of, terms
from batch_export.config.hydra_words import unmeant
from batch_export.environments.request import request
from batch_export.errors import UsageError
from batch_export.exact_json import beyond_64_bits
from batch_export.numbers.tolerances import Tolerance
from batch_export.spec import GUARD_WORDS, AxisSpec, CacheSpec, InputSpec, ModelSpec
from batch_export.words import did_you_mean

RESERVED_KEYS = (
    "_target_",
    "description",
    "requires",
    "tags",
    "seed",
    "inputs",
    "axes",
    "output_names",
    "tolerances",
    "timeout_s",
    "memory_gb",
    "allow_nonfinite",
    "guards",
    "allow_guards",
    "env",
)
"""Keys that describe the model; every other key of the file is an argument of the builder."""

FLOAT_DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
INTEGER_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")
"""torch's names of the dtypes that an input can have."""

_CACHE_KEYS = ("cache", "layers", "keys", "values")
_CACHE_PAIR = ("self_attention_cache", "cross_attention_cache")
_TENSOR_KEYS = ("dtype", "shape", "range", "fill")
_AXIS_KEYS = ("example", "check")
_TOLERANCE_KEYS = ("atol", "rtol")
_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def model_spec(name: str, config: Mapping[str, Any]) -> ModelSpec:
    """Reads one model's configuration.

    Args:
        name: the model's name, i.e. the file's name without its ending.
        config: the file's content as plain mappings, lists and scalars; interpolations resolved.

    Raises:
        UsageError: something in it is missing, mistyped or does not fit the rest.
    """
    return _Reader(name).read(config)


class _Reader:
    """Reads one file; holds the model's name for the error messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.caches: list[CacheSpec] = []

    def read(self, config: Mapping[str, Any]) -> ModelSpec:
        if self.name in (".", "..") or any("\ud800" <= letter <= "\udfff" for letter in self.name):
            self._fail("this is no name of a folder in UTF-8, which its exported files need; rename its config")
        if not isinstance(config, Mapping):
            self._fail(f"the configuration must be a mapping, not {_kind(config)}")
        # Beside the builder's own `_target_` the word `_recursive_: false` is read: its arguments stay data.
        if problem := unmeant({key: one for key, one in config.items() if (key, one) != ("_recursive_", False)}):
            self._fail(problem)
        target = config.get("_target_")
        if target is None:
            likely = [key for key in config if did_you_mean(str(key), ["_target_"])]
            hint = f"; is {likely[0]!r} mistyped?" if likely else ""
            self._fail(f"has no '_target_', the importable name of a builder such as 'models.torch_basic.cnn'{hint}")
        if isinstance(target, str) and ("<" in target or target.startswith("__main__.")):
            self._fail(
                f"'_target_' is {target!r}, which other processes cannot import (a closure, a lambda, or a function of "
                "a script or notebook cell); move the builder to the top level of a module file"
            )
        if not isinstance(target, str) or not _DOTTED_NAME.fullmatch(target):
            self._fail(f"'_target_' must be a dotted name such as 'models.torch_basic.cnn', not {target!r}")
        arguments = {str(key): value for key, value in config.items() if key not in RESERVED_KEYS}
        if not config.get("inputs"):
            likely = [key for key in arguments if did_you_mean(key, ["inputs"])]
            hint = f"; is {likely[0]!r} mistyped?" if likely else ""
            self._fail(f"has no 'inputs'; name every argument of forward with its dtype and shape{hint}")
        large = beyond_64_bits(dict(config))
        if large is not None:
            self._fail(
                f"the whole number {large} has more than 64 bits; write it as a text, and let the builder read it"
            )
        axes = self._axes(config.get("axes") or {})
        inputs = tuple(self._inputs(config["inputs"], arguments))
        spec = ModelSpec(
            name=self.name,
            target=target,
            arguments=arguments,
            inputs=inputs,
            caches=tuple(self.caches),
            axes=axes,
            tags=self._words("tags", config.get("tags")),
            requires=self._words("requires", config.get("requires")),
            seed=self._whole("seed", config.get("seed", 0)),
            seed_given="seed" in config,
            tolerances=self._tolerances(config.get("tolerances") or {}),
            output_names=self._words("output_names", config.get("output_names")),
            timeout_s=self._limit("timeout_s", config.get("timeout_s", 0.0)),
            memory_gb=self._limit("memory_gb", config.get("memory_gb", 0.0)),
            allow_nonfinite=self._truth("allow_nonfinite", config.get("allow_nonfinite", False)),
            guards=self._guards(config),
            env=self._environment(config.get("env")),
        )
        self._agree(spec)
        return spec

    def _environment(self, value: Any) -> tuple[str, ...]:
        found = self._words("env", value)
        try:
            request(found)
        except UsageError as error:
            self._fail(f"'env': {error}")
        return found

    # Axes.

    def _axes(self, axes: Any) -> tuple[AxisSpec, ...]:
        if not isinstance(axes, Mapping):
            self._fail(f"'axes' must map names to sizes, not {_kind(axes)}")
        return tuple(self._axis(str(name), value) for name, value in axes.items())

    def _axis(self, name: str, value: Any) -> AxisSpec:
        where = f"axes.{name}"
        if not _AXIS_NAME.fullmatch(name):
            self._fail(f"axis name {name!r} must be letters, digits and '_', and not start with a digit")
        if name in WORDS:
            self._fail(f"an axis cannot be called {name!r}, which is the name of a dynamic-shape setting")
        if not isinstance(value, Mapping):
            self._fail(f"'{where}' must be a mapping such as {{example: 2, check: [1, 5]}}, not {value!r}")
        self._known(where, value, _AXIS_KEYS)
        if "example" not in value:
            self._fail(f"'{where}' has no 'example', the size in the example inputs")
        example = self._size(f"{where}.example", value["example"], least=1)
        check = value.get("check") or []
        if not _is_list(check):
            self._fail(f"'{where}.check' must be a list of sizes, not {check!r}")
        sizes = tuple(self._size(f"{where}.check[{index}]", size, least=0) for index, size in enumerate(check))
        return AxisSpec(name, example, sizes)

    def _size(self, where: str, value: Any, least: int) -> int:
        size = self._whole(where, value)
        if size < least:
            self._fail(f"'{where}' is {size}, and a size there must be at least {least}")
        return size

    # Inputs: a tree of mappings and lists whose leaves are tensors or constants.

    def _inputs(self, tree: Any, arguments: Mapping[str, Any]) -> Iterable[InputSpec]:
        if not isinstance(tree, Mapping):
            self._fail(f"'inputs' must map the parameters of forward to their specs, not {_kind(tree)}")
        for name, node in tree.items():
            yield from self._node((str(name),), node, arguments)

    def _node(self, path: tuple[str | int, ...], node: Any, arguments: Mapping[str, Any]) -> Iterable[InputSpec]:
        where = "inputs" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        if _is_list(node):
            if not node:
                self._fail(f"'{where}' is an empty list; list at least one tensor")
            for index, item in enumerate(node):
                yield from self._node((*path, index), item, arguments)
        elif not isinstance(node, Mapping):
            self._fail(f"'{where}' must be a tensor such as {{dtype: float32, shape: [batch, 8]}}, not {node!r}")
        elif "cache" in node and not isinstance(node["cache"], Mapping):
            yield from self._cache(where, path, node, arguments)
        elif "dtype" in node and not isinstance(node["dtype"], Mapping):
            yield self._tensor(where, path, node, arguments)
        elif set(node) == {"value"} and not isinstance(node["value"], Mapping):
            value = node["value"]
            yield InputSpec(path, constant=list(value) if _is_list(value) else value)
        elif not node:
            self._fail(f"'{where}' is empty; give it a dtype and a shape")
        else:
            self._no_mistyped_leaf(where, node)
            for key, item in node.items():
                yield from self._node((*path, str(key)), item, arguments)

    def _cache(
        self, where: str, path: tuple[str | int, ...], node: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> Iterable[InputSpec]:
        """A cache object: keys and values of each layer, or a cache of either kind of attention."""
        target = node["cache"]
        if not isinstance(target, str) or not _DOTTED_NAME.fullmatch(target):
            self._fail(f"'{where}.cache' must be a dotted name such as transformers.DynamicCache, not {target!r}")
        options = {str(key): value for key, value in node.items() if key not in (*_CACHE_KEYS, *_CACHE_PAIR)}
        self.caches.append(CacheSpec(path, target, options))
        if any(name in node for name in _CACHE_PAIR):
            for name in _CACHE_PAIR:
                if not isinstance(node.get(name), Mapping) or "cache" not in node[name]:
                    self._fail(f"'{where}' is a pair of caches, and '{where}.{name}' is not a cache")
                yield from self._node((*path, name), node[name], arguments)
            return
        layers = self._size(f"{where}.layers", node.get("layers", 0), least=1)
        keys = node.get("keys")
        for part, tensor in (("key_cache", keys), ("value_cache", node.get("values", keys))):
            if not isinstance(tensor, Mapping) or "dtype" not in tensor:
                self._fail(f"'{where}' is a cache and needs 'keys', a tensor such as {{dtype: float32, shape: [...]}}")
            for layer in range(layers):
                yield from self._node((*path, part, layer), tensor, arguments)

    def _no_mistyped_leaf(self, where: str, node: Mapping[Any, Any]) -> None:
        """Fails when a mapping that is no leaf by its keys was plainly meant as one: its values are not specs."""
        plain = [str(key) for key, value in node.items() if not isinstance(value, Mapping) and not _holds_specs(value)]
        if not plain:
            return
        for key in node:
            hint = did_you_mean(str(key), ["dtype"])
            if hint:
                self._fail(f"'{where}' has the unknown key {key!r}{hint}")
        hint = did_you_mean(plain[0], [*_TENSOR_KEYS, "value"])
        if plain[0] in _TENSOR_KEYS:
            self._fail(f"'{where}' has a {plain[0]!r} but no 'dtype'; give one, such as float32 or int64")
        if plain[0] == "value":
            self._fail(f"'{where}' is a constant, whose only key is 'value'; remove {sorted(set(node) - {'value'})}")
        self._fail(f"'{where}' has the unknown key {plain[0]!r}{hint or ' (a tensor has dtype, shape, range, fill)'}")

    def _tensor(
        self, where: str, path: tuple[str | int, ...], node: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> InputSpec:
        self._known(where, node, _TENSOR_KEYS)
        dtype = node["dtype"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            self._fail(f"'{where}.dtype' is {dtype!r}, which is not a dtype of torch{did_you_mean(str(dtype), DTYPES)}")
        shape = node.get("shape")
        if not _is_list(shape):
            self._fail(f"'{where}' needs 'shape', a list of axis names and sizes such as [batch, 8] ([] for a scalar)")
        assert shape is not None
        entries = tuple(self._entry(f"{where}.shape", entry) for entry in shape)
        low, high = self._range(where, node, arguments)
        fill = node.get("fill")
        if fill is not None:
            if isinstance(fill, str) or not isinstance(fill, int | float):
                self._fail(f"'{where}.fill' must be a number, not {fill!r}")
            if low is not None or high is not None:
                self._fail(f"'{where}' has both 'range' and 'fill'; keep one")
        if dtype in INTEGER_DTYPES and fill is None and high is None:
            self._fail(f"'{where}' holds integers: give 'range: [low, high]' (high is excluded) or 'fill'")
        return InputSpec(path, dtype, entries, low, high, None if fill is None else float(fill))

    def _entry(self, where: str, entry: Any) -> int | str:
        if isinstance(entry, bool) or not isinstance(entry, int | str):
            self._fail(f"'{where}' holds {entry!r}; a shape entry is a size, an axis name, or a sum such as past+seq")
        if isinstance(entry, int):
            return self._size(where, entry, least=0)
        parts = [part.strip() for part in entry.split("+")]
        for part in parts:
            if not part.isdigit() and not _AXIS_NAME.fullmatch(part):
                self._fail(
                    f"'{where}' holds {entry!r}; a shape entry is a size, an axis name, or a sum such as past+seq"
                )
        return "+".join(parts)

    def _range(
        self, where: str, node: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> tuple[float | None, float | None]:
        bounds = node.get("range")
        if bounds is None:
            return None, None
        if not _is_list(bounds) or len(bounds) != 2:
            self._fail(f"'{where}.range' must be [low, high], not {bounds!r}")
        low, high = (self._bound(f"{where}.range", bound, arguments) for bound in bounds)
        if low >= high:
            self._fail(f"'{where}.range' is [{low:g}, {high:g}]; low must be below high (which is excluded)")
        return low, high

    def _bound(self, where: str, bound: Any, arguments: Mapping[str, Any]) -> float:
        value = bound
        if isinstance(bound, str):
            if bound not in arguments:
                self._fail(
                    f"'{where}' names the builder argument {bound!r}, not set here{did_you_mean(bound, arguments)}"
                )
            value = arguments[bound]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._fail(f"'{where}' must hold finite numbers or names of builder arguments that are, not {bound!r}")
        return float(value)

    # The rest.

    def _tolerances(self, tolerances: Any) -> dict[str, Tolerance]:
        if not isinstance(tolerances, Mapping):
            self._fail(f"'tolerances' must map dtypes to {{atol, rtol}}, not {_kind(tolerances)}")
        self._known("tolerances", tolerances, DTYPES)
        for dtype in tolerances:
            if str(dtype).startswith("complex"):
                parts = "float32" if dtype == "complex64" else "float64"
                self._fail(f"'tolerances.{dtype}' says nothing: complex outputs are judged as {parts}; set that")
        read: dict[str, Tolerance] = {}
        for dtype, value in tolerances.items():
            where = f"tolerances.{dtype}"
            if not isinstance(value, Mapping):
                self._fail(f"'{where}' must be a mapping such as {{atol: 1e-4, rtol: 1e-3}}, not {value!r}")
            self._known(where, value, _TOLERANCE_KEYS)
            numbers = [value.get(key) for key in _TOLERANCE_KEYS]
            for key, number in zip(_TOLERANCE_KEYS, numbers, strict=True):
                if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
                    self._fail(f"'{where}.{key}' must be a finite number of at least 0, not {number!r}")
            read[str(dtype)] = Tolerance(*map(float, numbers))  # type: ignore[arg-type]
        return read

    def _agree(self, spec: ModelSpec) -> None:
        """Checks what holds between the parts: axes and shapes name each other, and input names are distinct."""
        known = [axis.name for axis in spec.axes]
        used: set[str] = set()
        for leaf in spec.inputs:
            for entry in leaf.shape:
                for term in terms(entry):
                    if isinstance(term, str):
                        if term not in known:
                            near = did_you_mean(term, known) or _mistyped_axes(spec.arguments)
                            self._fail(f"the shape of input {_dotted(leaf)!r} names {term!r}, no axis{near}")
                        used.add(term)
        for name in known:
            if name not in used:
                hint = did_you_mean(name, used)
                self._fail(f"axis {name!r} is in no input's shape; use it in one, or remove it from 'axes'{hint}")
        names = input_names(spec)
        for name in names:
            if names.count(name) > 1:
                self._fail(
                    f"two inputs would both be called {name!r} in the file (paths are joined by '_'); rename one"
                )
        example = {axis.name: axis.example for axis in spec.axes}
        for leaf in spec.inputs:
            if leaf.dtype and math.prod(size_of(entry, example) for entry in leaf.shape) == 0:
                self._fail(f"input {_dotted(leaf)!r} would be empty at the example sizes; give its axes larger ones")

    def _words(self, key: str, value: Any) -> tuple[str, ...]:
        if value is None:
            return ()
        if not _is_list(value) or not all(isinstance(word, str) and word for word in value):
            self._fail(f"'{key}' must be a list of words, not {value!r}")
        return tuple(value)

    def _whole(self, where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self._fail(f"'{where}' must be a whole number, not {value!r}")
        return value

    def _truth(self, where: str, value: Any) -> bool:
        if not isinstance(value, bool):
            self._fail(f"'{where}' must be true or false, not {value!r}")
        return value

    def _guards(self, config: Mapping[str, Any]) -> str:
        """What becomes of guards; `allow_guards` is the older spelling."""
        allowed = self._truth("allow_guards", config.get("allow_guards", False))
        word = str(config.get("guards", "allow" if allowed else "warn"))
        if word not in GUARD_WORDS:
            self._fail(f"'guards' must be one of {', '.join(GUARD_WORDS)}, not {word!r}")
        if allowed and word != "allow":
            self._fail(f"'allow_guards: true' is an older spelling of 'guards: allow', and 'guards' is {word!r}")
        return word

    def _limit(self, where: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            self._fail(f"'{where}' must be a positive number, or 0 for the run's own limit, not {value!r}")
        return float(value)

    def _known(self, where: str, node: Mapping[Any, Any], known: Sequence[str]) -> None:
        for key in node:
            if key not in known:
                hint = did_you_mean(str(key), known) or f" (known: {', '.join(known)})"
                self._fail(f"'{where}' has the unknown key {str(key)!r}{hint}")

    def _fail(self, problem: str) -> NoReturn:
        raise UsageError(f"model {self.name!r}: {problem}")


def _mistyped_axes(arguments: Mapping[str, Any]) -> str:
    """A question about the builder's argument that was plainly meant as `axes`; empty where there is none."""
    likely = [key for key, value in arguments.items() if isinstance(value, Mapping) and did_you_mean(key, ["axes"])]
    return f"; is {likely[0]!r} mistyped for 'axes'?" if likely else ""


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _holds_specs(value: Any) -> bool:
    return _is_list(value) and all(isinstance(item, Mapping) or _holds_specs(item) for item in value)


def _dotted(leaf: InputSpec) -> str:
    return ".".join(map(str, leaf.path))


def _kind(value: Any) -> str:
    return f"the {type(value).__name__} {value!r}"
