"""`convert FILE --opset N [--dest FILE]`: an ONNX file at another opset, run before and after."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from batch_export.cli.arguments import VerbParser
from batch_export.errors import OpsetError
from batch_export.nouns import counted


def run(arguments: list[str]) -> int:
    """Converts; 0 when the file is written, 1 when it has no form at that opset or does not agree with the old one."""
    from batch_export.conversion.convert import convert  # lazy: onnx and numpy, which `--help` does without

    asked = _parser().parse_args(arguments)
    file: Path = asked.file
    dest = asked.dest or file.with_name(f"{file.stem}.opset{asked.opset}.onnx")
    try:
        done = convert(file, asked.opset, dest)
    except OpsetError as error:
        from batch_export.error_codes import code_of  # lazy: all explanations come with it

        print(f"{file}: {error} [{code_of(type(error))}]", file=sys.stderr)
        return 1
    for name, count in sorted(done.kept.items()):
        print(f"kept as it is: {counted(count, 'node')} {name}, which is not ONNX's own")
    found = done.comparison
    for sentence in found.worse:
        print(f"{file}: at opset {asked.opset} {sentence}", file=sys.stderr)
    if done.path is None:
        why = "" if found.worse else f", and onnx's converter is not trusted unseen: {found.unverified}"
        print(f"nothing is written: the file at opset {asked.opset} is not known to be right{why}", file=sys.stderr)
        return 1
    before, after = found.judges
    judges = before if before == after else f"{before} before, {after} after"
    said = (
        f"not verified: {found.unverified}"
        if found.unverified
        else f"verified by {judges} on {counted(found.runs, 'set')} of inputs, largest difference {found.largest:.1e}"
    )
    print(f"{done.path}: opset {done.opsets[0]} to {done.opsets[1]}, {counted(done.changed, 'node')} changed; {said}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser("convert", "Writes an ONNX file at another opset, and compares both on inputs of its own.")
    parser.add_argument("file", type=Path, metavar="FILE", help="the ONNX file")
    parser.add_argument("--opset", type=int, required=True, metavar="N", help="the opset wanted, 7 to 28")
    parser.add_argument(
        "--dest", type=Path, metavar="FILE", help="where it goes (default: FILE with .opsetN in its name)"
    )
    return parser
