"""The flags of `new` and `try` that describe a model: its inputs, its builder's arguments, and how long it may take."""

from __future__ import annotations

import argparse

_SOURCE = "what returns the module, a .pt2 or .pt file, or the folder of a transformers checkpoint"


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=DTYPE[SIZES]",
        help="an argument of forward, e.g. 'x=float32[batch,3,H=64,W=64]': a word is a free axis, 64 its example size "
        "(found by running the model when left out); "
        "'ids=int64[batch,seq]:0..1000' has a range, 'd.x=...' stands in a dict, 'flag=true' is a constant. "
        "Without any the inputs are found by running the model",
    )
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the builder, as YAML reads it"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="for finding out what it takes (default: 300)"
    )


def source_help() -> str:
    """What may be named as a model."""
    return _SOURCE
