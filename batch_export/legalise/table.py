"""docs/opsets.md: what becomes of ONNX's operators at each opset, found by running the rules' examples.

Nothing arrives; a page in Markdown leaves. An operator that is there from the lowest opset on and has no rule needs no
row.
"""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir

from batch_export.errors import NoFormError
from batch_export.legalise import steps
from batch_export.legalise.chain import legalise

NATIVE, COMPOSED, NONE = "native", "composed", "none"
_SIGNS = {NATIVE: "●", COMPOSED: "○", NONE: "-"}
_OPSETS = range(steps.WHOLE, steps.HIGHEST + 1)

_HEAD = """# Operators at each opset

The exporter writes opsets {low} to {high}, and `convert FILE --opset N` brings an existing file there. The file has
exactly the opset asked for and an IR version that fits it, or there is none: an error (BE212) then names the operator,
its line in the model and the nearest opset at which it has a form.

Translations are written for opset 18, a few operators for the opset that brought them. From there the rules of
`batch_export/legalise/` go up or down one opset at a time, one file a step. This page is what
`python -m batch_export.legalise` says: it runs every rule's example.

Below opset {whole} a model is brought down where its operators have a form: axes, lengths, limits and pads that became
inputs at 10, 11 and 13 have to be constants there, and what came later (Einsum at 12; CumSum, Round, GatherElements,
ScatterND and sequences at 11; Mod and quantisation at 10; Where, Erf and NonZero at 9) has none.

● the operator is written as it is; ○ it is written with others; - there is no form. Operators that are the same from
opset {whole} on are not listed. A dtype that an operator takes at later opsets only is computed in float32 (half
precision) or int32 (small integers), between two casts; any other is an error.

## Operators that came later

"""


def page() -> str:
    """The page."""
    header = ["operator", *map(str, _OPSETS)]
    rows = [[f"`{name}`", *(_SIGNS[form(name, opset)] for opset in _OPSETS)] for name in _later()]
    changed = [["operator", "step", "no form for"]]
    for name, left, level, unless in _with_limits():
        changed.append([f"`{name}`", f"{left} to {level}", unless])
    return "\n".join(
        [
            _HEAD.format(low=steps.LOWEST, whole=steps.WHOLE, high=steps.HIGHEST).rstrip("\n"),
            "",
            *_table([header, *rows]),
            "",
            "## What a step cannot say",
            "",
            "These have a rule between the two opsets, and no form at the second for what is named here.",
            "",
            *_table(changed),
            "",
        ]
    )


def _table(rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def form(name: str, opset: int) -> str:
    """How an operator is written at an opset: `native`, `composed` or `none`."""
    since = _since(name)
    if opset >= since:
        return NATIVE
    rule = steps.DOWN.get(since - 1, {}).get(name)
    if rule is None:
        return NONE
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(rule.example))
    try:
        legalise(ir.serde.deserialize_model(model), since, opset)
    except NoFormError:
        return NONE
    return COMPOSED


@cache
def _since(name: str) -> int:
    """The first opset at which an operator is there and not deprecated, in the form that it has now.

    GroupNormalization of opsets 18 to 20, which means something else, is no form of today's.
    """
    schemas = sorted(
        (schema for schema in _schemas() if schema.name == name), key=lambda schema: int(schema.since_version)
    )
    standing = 0
    for schema in schemas:
        if schema.deprecated:
            standing = 0
        elif not standing:
            standing = int(schema.since_version)
    return standing


@cache
def _schemas() -> tuple[onnx.defs.OpSchema, ...]:
    return tuple(schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == "")


def _later() -> list[str]:
    """Operators that came after the lowest opset, by their opset and name."""
    names = {schema.name for schema in _schemas()}
    later = [name for name in names if steps.WHOLE < _since(name) <= steps.HIGHEST]
    return sorted(later, key=lambda name: (_since(name), name))


def _with_limits() -> list[tuple[str, int, int, str]]:
    """Rules that do not have a form for everything: operator, the opset left, the one reached, and for what not."""
    down = [(name, level + 1, level, rule.unless) for level in steps.DOWN for name, rule in steps.DOWN[level].items()]
    up = [(name, level - 1, level, rule.unless) for level in steps.UP for name, rule in steps.UP[level].items()]
    return [row for row in (*down, *up) if row[3]]
