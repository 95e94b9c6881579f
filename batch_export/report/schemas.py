"""JSON Schemas of the files that other tools read: `python -m batch_export.report.schemas DIR` writes them.

Types go in, schemas come out, made by msgspec from the same dataclasses that write the files; a test compares
docs/schema/ with them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from batch_export.record import SCHEMA_VERSION, Record
from batch_export.report.baseline import Baseline
from batch_export.report.compare import KINDS
from batch_export.report.run_folder import StoredRun
from batch_export.report.wording import OUTCOMES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema."""
    made = {
        "record.schema.json": _of(Record, "One line of records.jsonl"),
        "run.schema.json": _of(StoredRun, "run.json"),
        "baseline.schema.json": _of(Baseline, "A baseline"),
        "summary.schema.json": _summary(),
    }
    for name, schema in made.items():
        schema["$id"] = name
    return made


def write_schemas(folder: Path) -> None:
    """Writes every schema into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / name).write_bytes(encoded(schema))


def encoded(schema: dict[str, Any]) -> bytes:
    """The bytes of a schema's file."""
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=1) + b"\n"


def _of(kind: type, title: str) -> dict[str, Any]:
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(kind)}


def _summary() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    counts = {"type": "object", "additionalProperties": count}
    properties: dict[str, Any] = {
        "schema_version": {"const": SCHEMA_VERSION},
        "planned": count,
        **{outcome: count for outcome in OUTCOMES},
        "wall_s": {"type": "number", "minimum": 0},
        "cached": count,
        "ran": count,
        "rerun_failures": count,
        "interrupted": {"type": "boolean"},
        "speed_up": {"type": ["number", "null"]},
        "command": {"type": "string"},
        "skip_reasons": counts,
        "xfail_reasons": counts,
    }
    required = list(properties)
    properties["stale_expectations"] = {"type": "array", "items": {"type": "string"}}
    properties["stale_exclusions"] = {"type": "array", "items": {"type": "string"}}
    properties["nothing_tested"] = {"type": "boolean"}
    properties["by_distribution"] = count
    properties["by_ties"] = count
    texts = {"type": "array", "items": {"type": "string"}}
    properties["disagreements"] = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "file": {"type": "string"},
                "agree": texts,
                "differ": {"type": "array", "items": texts},
                "refuse": texts,
                "alone": texts,
                "says": {"type": "string"},
            },
            "required": ["file", "agree", "differ", "refuse", "alone", "says"],
            "additionalProperties": False,
        },
    }
    properties["comparison"] = {
        "type": ["object", "null"],
        "properties": {
            "base": {"type": "string"},
            "story": {"type": "string"},
            "worse": count,
            "counts": {"type": "object", "properties": {kind: count for kind in KINDS}},
            "changes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "kind": {"enum": list(KINDS)},
                        "cell": {"type": "string"},
                        "text": {"type": "string"},
                    },
                    "required": ["kind", "cell", "text"],
                },
            },
        },
    }
    return {
        "$schema": _DIALECT,
        "title": "summary.json",
        "type": "object",
        "properties": properties,
        "required": required,
    }


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
