"""Exported programs that lie in a file.

Arrives: what was given as a model. Leaves: the program in its place where it is the path of a `.pt2` file, else the
same object. A file of another version of torch, and one that holds no program, is one sentence. Nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._export.serde.schema import SCHEMA_VERSION

from batch_export.errors import CaptureError
from batch_export.words import class_and_line

_SUFFIX = ".pt2"
_SAVE_AGAIN = (
    "save the program with torch.export.save(torch.export.export(model, args), path), or pass the model itself"
)


def loaded(model: Any) -> Any:
    """The program in a `.pt2` file, or what was given where that is no path of one.

    Raises:
        CaptureError: if there is no such file, it holds no program, or this torch cannot read it.
    """
    if not isinstance(model, (str, os.PathLike)):
        return model
    path = Path(os.fspath(model))
    if path.suffix != _SUFFIX:
        raise CaptureError(
            f"the model is the path {path}, which does not end in {_SUFFIX}",
            next_step="pass the path of a program that torch.export.save wrote, or load the model and pass that",
        )
    if not path.is_file():
        raise CaptureError(f"there is no file {path}", next_step="check the path")
    _require_program(path)
    with _heard() as causes:
        try:
            return torch.export.load(path)
        except Exception as error:
            cause = causes[0] if causes else error
            raise CaptureError(
                f"torch {torch.__version__} cannot read the program in {path}: {class_and_line(cause)}",
                next_step=f"import first what registers the model's operators and classes; or {_SAVE_AGAIN}",
            ) from cause


def _require_program(path: Path) -> None:
    """Refuses a file that is no archive of a program, or whose schema is not this torch's.

    The layout is torch's (torch/csrc/export/pt2_archive_constants.h): one JSON document for each program under
    `models/`, which has the schema's version and, from 2.5 on, torch's.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            found = [name for name in names if "/models/" in name and name.endswith(".json")]
            held = json.loads(archive.read(found[0])) if found else None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CaptureError(f"{path} is no archive of torch.export.save: {error}", next_step=_SAVE_AGAIN) from error
    if held is None:
        if "serialized_exported_program.json" in names:  # torch before 2.8 wrote it at the top
            return
        raise CaptureError(f"{path} holds {_content(names)}, and no exported program", next_step=_instead(names))
    version = held.get("schema_version", {})
    if version.get("major") != SCHEMA_VERSION[0]:
        ours = ".".join(map(str, SCHEMA_VERSION))
        theirs = f"{version.get('major')}.{version.get('minor')}"
        raise CaptureError(
            f"{path} was saved by torch {held.get('torch_version') or 'of another version'} (schema {theirs}), and "
            f"torch {torch.__version__} reads schema {ours}",
            next_step="export it where that version is installed, or save the program again with this one",
        )


def _content(names: list[str]) -> str:
    if any(name.endswith("/constants.pkl") for name in names):
        return "a TorchScript module"
    return "a pickled object" if any(name.endswith("/data.pkl") for name in names) else "other files"


def _instead(names: list[str]) -> str:
    if any(name.endswith("/constants.pkl") for name in names):
        return "pass torch.jit.load(path)"
    return _SAVE_AGAIN


@contextlib.contextmanager
def _heard() -> Iterator[list[BaseException]]:
    """Errors that torch logs with a traceback, in place of raising them; within, they are kept and not printed."""
    causes: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            causes.append(record.exc_info[1])
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(keep)
    try:
        yield causes
    finally:
        logger.removeFilter(keep)
