"""A repro of a whole cell, where no part of its model fails in the same way: contracts, free axes, eager itself.

A request arrives; a folder with `repro.py` and `case.json` leaves, if the cell fails again. Nothing of the cell runs in
this process: `whole_cell.py` tries it in another.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec

from batch_export.exporter.repro import script
from batch_export.exporter.repro.script import Symptom
from batch_export.exporter.repro.write import Repro
from batch_export.plan.matrix import PlannedCell
from batch_export.record import PROCESS_STAGES
from batch_export.sources.closure import local_roots
from batch_export.spec import CORE_EXPORTER_TARGET
from batch_export.stages.follow_up_request import Request

_ATTEMPT = "batch_export.stages.whole_cell"


class WholeCell:
    """The cell of a request, tried as a run does; `scratch` is an existing folder."""

    def __init__(self, request: Request, scratch: Path) -> None:
        self._request = request
        self._folder = scratch / "whole"

    def written(self) -> Repro | None:
        """Writes the repro; None if the cell does not fail again as its record says.

        Raises:
            RuntimeError: it could not be tried.
        """
        record = self._request.record
        wanted: Symptom = {"stage": record.stage, "error_class": record.error_class, "operator": "", "message": ""}
        case = self._case(self._request.planned)
        found = self._tried(case)
        if found is None or not script.same_symptom(found, wanted):
            return None
        target = Path(self._request.folder)
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        (target / "case.json").write_text(json.dumps({**case, "symptom": found}, indent=2), encoding="utf-8")
        shutil.copyfile(Path(script.__file__), target / "repro.py")
        return Repro(target, found, (), "", 1)

    def capture_ends(self) -> bool:
        """Whether what a plug-in exporter ended by is the capture, which must not be made in this process then."""
        core = replace(self._request.planned.exporter, target=CORE_EXPORTER_TARGET, arguments={})
        try:
            found = self._tried(self._case(replace(self._request.planned, exporter=core)))
        except RuntimeError:
            return True
        return found is not None and found["stage"] in PROCESS_STAGES

    def _case(self, planned: PlannedCell) -> dict[str, object]:
        request = self._request
        return {
            "title": planned.cell.name,
            "attempt": _ATTEMPT,
            "planned": msgspec.to_builtins(planned),
            "tolerances": msgspec.to_builtins(request.tolerances),
            "timeout_s": request.timeout_s,
            "memory_bytes": request.memory_bytes if request.record.stage == "memory" else 0,
            "roots": list(map(str, local_roots())),
            "home": str(Path.cwd()),
        }

    def _tried(self, case: dict[str, object]) -> Symptom | None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
        return script.in_child(self._folder, case)
