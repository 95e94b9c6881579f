"""A contract: what a file's inputs and outputs are asked to be.

Frozen plain data; `stages/check.py` compares files with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorContract:
    """One input or output.

    Attributes:
        name: its name in the file; empty when any name will do.
        dtype: numpy name, e.g. `float32`, `bfloat16`.
        shape: an int must be that size in the file; a str must be symbolic there; None as a whole when not requested.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class Contract:
    """What one file was asked to be: the exact opset, inputs and outputs in order.

    Attributes:
        mutations: names of buffers and inputs that the model changes; each must appear as a named extra output, after
            the ordinary ones.
    """

    opset: int
    inputs: tuple[TensorContract, ...]
    outputs: tuple[TensorContract, ...]
    mutations: tuple[str, ...] = ()
