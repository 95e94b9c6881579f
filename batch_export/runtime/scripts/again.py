"""Does `model.onnx` still fail? Exits 1 while it does, 0 once it is right. Needs numpy and the runtime only.

`case.json` holds the runtime's settings, the inputs, and the outputs to be expected (base64 of the little-endian
bytes). `runtime.py` shows the calls that are made.
"""

from __future__ import annotations

import base64
import importlib
import json
import pathlib
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = pathlib.Path(__file__).resolve().parent


def array(entry: dict[str, Any]) -> NDArray[Any]:
    """Returns a tensor of case.json."""
    data = base64.b64decode(entry["data"])
    return np.frombuffer(data, dtype=np.dtype(entry["dtype"]).newbyteorder("<")).reshape(entry["shape"]).copy()


def difference(name: str, expected: NDArray[Any], actual: Any, rtol: float, atol: float) -> str:
    """Returns in words how an output differs from what is expected; empty where it does not."""
    actual = np.asarray(actual)
    if actual.dtype != expected.dtype:
        return f"output {name} is {actual.dtype}, expected {expected.dtype}"
    if actual.shape != expected.shape:
        return f"output {name} has shape {list(actual.shape)}, expected {list(expected.shape)}"
    near = np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if near.all():
        return ""
    place = tuple(int(index) for index in np.argwhere(~near)[0])
    return (
        f"output {name}: {int((~near).sum())} of {near.size} elements differ, the first at {list(place)}: "
        f"{actual[place]!r}, expected {expected[place]!r}"
    )


def main() -> int:
    """Runs the file once."""
    case = json.loads((FOLDER / "case.json").read_text(encoding="utf-8"))
    sys.path.insert(0, str(FOLDER))
    sys.dont_write_bytecode = True
    runtime = importlib.import_module("runtime")

    print(f"{case['runtime']} {runtime.version()}")
    inputs = {entry["name"]: array(entry) for entry in case["inputs"]}
    try:
        results = runtime.outputs(str(FOLDER / "model.onnx"), case["settings"], inputs)
    except Exception as error:
        print(f"fails: {type(error).__name__}: {error}")
        return 1
    for entry, result in zip(case["outputs"], results):  # noqa: B905 (any Python)
        words = difference(entry["name"], array(entry), result, case["rtol"], case["atol"])
        if words:
            print(f"wrong: {words}")
            return 1
    if len(results) < len(case["outputs"]):
        print(f"wrong: {len(results)} outputs, expected {len(case['outputs'])}")
        return 1
    print("right: every output is as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
