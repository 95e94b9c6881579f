"""tract as `serve.py` wants a runtime: CPU, one thread, no options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tract


class Engine:
    """tract has nothing to set."""

    def __init__(self, settings: dict[str, Any]) -> None:
        if settings["options"]:
            raise RuntimeError(f"tract has no options, and got {', '.join(settings['options'])}")

    def describe(self) -> dict[str, Any]:
        """Returns what it is."""
        return {"version": str(tract.version()), "execution_providers": ["CPU"]}

    def open(self, path: str) -> Opened:
        """Reads and optimises a file."""
        with _plainly():
            return Opened(tract.onnx().load(path))


class Opened:
    """An optimised file."""

    def __init__(self, model: Any) -> None:
        self.input_names = [model.input_name(index) for index in range(model.input_count())]
        self.output_names = None  # tract calls them by the nodes that they come from
        self.input_shapes = [_shape(model.input_fact(index).dump()) for index in range(model.input_count())]
        self._runnable = model.into_model().into_runnable()
        self.placement = {"CPU": 1}

    def prepare(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Returns a function that runs the file on these values."""
        for name in self.input_names:
            dtype, array = feeds[name]
            if array.dtype.name != dtype or array.dtype.kind not in "biuf":
                raise RuntimeError(f"tract's Python package takes no {dtype} ({name})")
        values = [tract.Tensor.from_numpy(np.array(feeds[name][1])) for name in self.input_names]
        return lambda: self._ran(values)

    def _ran(self, values: list[Any]) -> Any:
        with _plainly():
            return self._runnable.run(values)

    def fetched(self, result: Any) -> list[tuple[str, Any]]:
        """Returns the outputs."""
        arrays = [value.to_numpy() for value in result]
        return [(array.dtype.name, array) for array in arrays]


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Leaves the stack of tract's own functions out of what it says, and puts its causes into one line."""
    try:
        yield
    except tract.TractError as error:
        told = str(error).partition("Stack backtrace:")[0].replace("Caused by:", "")
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        raise RuntimeError(": ".join(lines)) from error


def connect(settings: dict[str, Any]) -> Engine:
    """Returns the runtime as it was asked for."""
    return Engine(settings)


def _shape(fact: str) -> list[int | None] | None:
    """tract writes an input as `n,2,f32`; without a shape as `..,f32`."""
    sizes = [word.strip() for word in fact.split(",")[:-1]]
    if any(".." in size for size in sizes):
        return None
    return [int(size) if size.isdecimal() else None for size in sizes]
