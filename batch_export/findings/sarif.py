"""SARIF 2.1.0 from diagnostics: one rule per failure class, locations in the model's source, stable fingerprints.

Diagnostics arrive, a plain JSON value leaves; nothing is written. Format: OASIS, Static Analysis Results Interchange
Format 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/). Files below the root are written relative to it, as
code-scanning services want them; others as absolute URIs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batch_export.findings.diagnostic import Diagnostic
from batch_export.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
ROOT_ID = "SRCROOT"
_FINGERPRINT = "batchExport/v1"
_HELP = {
    "capture": "torch.export could not turn the model into an exported program.",
    "translate": "A node of the exported program could not be turned into ONNX.",
    "opset": "The file does not have the opset that was asked for.",
    "dynamic": "An axis that was asked for as dynamic is fixed, or the file is refused at other sizes.",
    "check": "The file is not what was asked for, or no valid ONNX.",
    "load": "The runtime does not load the file.",
    "run": "The runtime does not run the file.",
    "mismatch": "The file's outputs differ from eager PyTorch's by more than the tolerance.",
    "crash": "The process died.",
    "timeout": "A step took longer than its limit.",
    "memory": "A step took more memory than its limit.",
    "model": "The model could not be built, or fails in eager PyTorch.",
    "environment": "Something outside the model and the export failed.",
}


def sarif_log(diagnostics: Sequence[Diagnostic], root: Path, *, command: str = "", successful: bool = True) -> Any:
    """Returns the log.

    Args:
        diagnostics: what went wrong, in order.
        root: the repository's root; sources below it are written relative to it.
        command: the command line, if there was one.
        successful: whether the tool itself came to its end.
    """
    rules: dict[str, dict[str, Any]] = {}
    for one in diagnostics:
        rules.setdefault(_rule_id(one), _rule(one))
    order = list(rules)
    invocation: dict[str, Any] = {"executionSuccessful": successful}
    if command:
        invocation["commandLine"] = command
    run = {
        "tool": {
            "driver": {
                "name": "batch_export",
                "semanticVersion": __version__,
                "informationUri": "https://pypi.org/project/batch-export/",
                "rules": list(rules.values()),
            }
        },
        "invocations": [invocation],
        "originalUriBaseIds": {ROOT_ID: {"description": {"text": "The root of the repository."}}},
        "results": [_result(one, order.index(_rule_id(one)), root) for one in diagnostics],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule_id(one: Diagnostic) -> str:
    return f"{one.stage}/{one.error_class or 'Unknown'}"


def _rule(one: Diagnostic) -> dict[str, Any]:
    text = _HELP.get(one.stage, f"Something went wrong in the stage {one.stage}.")
    return {
        "id": _rule_id(one),
        "name": "".join(part[:1].upper() + part[1:] for part in (one.stage, one.error_class or "Unknown")),
        "shortDescription": {"text": text},
        "help": {"text": f"{text} `python -m batch_export bisect CELL` names the first wrong node."},
        "defaultConfiguration": {"level": one.level},
    }


def _result(one: Diagnostic, index: int, root: Path) -> dict[str, Any]:
    text = f"{one.subject}: {one.message}" if one.subject else one.message
    location: dict[str, Any] = {}
    physical = _physical(one.source or one.place, root)
    if physical is not None:
        location["physicalLocation"] = physical
    logical = [("type", one.operator), ("object", one.node), ("namespace", one.subject)]
    names = [{"kind": kind, "fullyQualifiedName": name} for kind, name in logical if name]
    if names:
        location["logicalLocations"] = names
    result: dict[str, Any] = {
        "ruleId": _rule_id(one),
        "ruleIndex": index,
        "level": one.level,
        "message": {"text": (text or _rule_id(one)).replace("](", "\\](")},  # no link but our own (SARIF 3.11.6)
        "partialFingerprints": {_FINGERPRINT: one.fingerprint},
    }
    if location:
        result["locations"] = [location]
    return result


def _physical(source: str, root: Path) -> dict[str, Any] | None:
    file, _, line = source.rpartition(":")
    if not file or not line.isdigit():
        return None
    path = Path(file)
    artifact: dict[str, Any]
    if not path.is_absolute():
        artifact = {"uri": path.as_posix(), "uriBaseId": ROOT_ID}
    elif path.is_relative_to(root):
        artifact = {"uri": path.relative_to(root).as_posix(), "uriBaseId": ROOT_ID}
    else:
        artifact = {"uri": path.as_uri()}
    return {"artifactLocation": artifact, "region": {"startLine": max(1, int(line))}}
