"""What an exporter is called with, `f(module, args, kwargs, **wanted)`: written once, for callers and exporters alike.

An exporter is any callable that writes an ONNX file; what its config says besides comes as further keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    import torch


_Exporter = TypeVar("_Exporter", bound="Callable[..., None]")


class Wanted(TypedDict):
    """The file that an exporter is asked for.

    Attributes:
        path: where the ONNX file goes; files with its data lie beside it.
        opset_version: the ONNX opset.
        dynamic_shapes: a tree like `kwargs`, with `{axis: name}` at the tensors and None elsewhere; None: all static.
        input_names: names of the inputs, in order.
        output_names: names of the outputs, in order.
    """

    path: Path
    opset_version: int
    dynamic_shapes: dict[str, Any] | None
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None


class Exporter(Protocol):
    """Writes an ONNX file of a module with example inputs."""

    def __call__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]
    ) -> None: ...


def options(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What an exporter was given besides: the arguments of its config."""
    return {name: value for name, value in wanted.items() if name not in Wanted.__annotations__}


def passing_on(function: Callable[..., object]) -> Callable[[_Exporter], _Exporter]:
    """Marks an exporter that hands the arguments of its config on to another function."""

    def mark(exporter: _Exporter) -> _Exporter:
        vars(exporter)["passes_on"] = function
        return exporter

    return mark


def passed_on(exporter: Callable[..., object]) -> Callable[..., object]:
    """Returns the function that takes the arguments of an exporter's config: itself, unless it is marked."""
    found: Callable[..., object] = getattr(exporter, "passes_on", exporter)
    return found
