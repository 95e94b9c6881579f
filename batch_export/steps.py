"""What the steps of a cell are, one row each: all that differs from step to step but the work itself.

Another step is a row here, a module under `stages/` with its `execute`, its key in `keys.py` and its place in
`walk.walk`. Plain data; nothing is imported or executed here.
"""

from __future__ import annotations

from dataclasses import dataclass

from batch_export.action import Mnemonic
from batch_export.record import Stage

WORKBENCH = "Workbench"
"""Stands in an order's table of modules for the class that holds the live objects of a unit of work."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """What is known of a step before it is executed.

    Attributes:
        name: of the step; toolchains and orders speak of it by this name.
        failure: where a failure of it belongs when the exception does not say so itself.
        mnemonic: the name in keys and records; the step's own name, unless several steps make the same thing.
        module: of its `execute`. The result depends on all that this module imports of ours.
        live: whether it works on the workbench: the module, its inputs, the captured program.
        builds: whether it runs the model's own code, whose files are then noted with the result.
        makes: what a sentence calls that which it makes of the model that it builds.
        leaves: the attribute of the workbench in which it leaves a live object for other steps.
        exports: whether its time is part of what the export of a cell takes.
        alone: whether it is executed alone on the machine, after everything else.
        local: whether its result says something about one host: it never leaves its store.
        excused: whether a cell goes on without it: it then has no values in float64, or no speed-up to show.
        fresh: whether it is never executed in a process in which somebody else's exporter has run: others read its
            result, and nothing in it tells what such an exporter may have done to torch.
        reads: what of the arguments of `execute` is stored content: it is given the path of the file.
    """

    name: str
    failure: Stage
    mnemonic: Mnemonic = ""
    module: str = ""
    live: bool = False
    builds: bool = False
    makes: str = ""
    leaves: str = ""
    exports: bool = False
    alone: bool = False
    local: bool = False
    excused: bool = False
    fresh: bool = False
    reads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mnemonic", self.mnemonic or self.name)
        object.__setattr__(self, "module", self.module or f"batch_export.stages.{self.name.lower()}")


_FILE = ("model", "reference")

STEPS: dict[str, StepKind] = {
    kind.name: kind
    for kind in (
        StepKind("Reference", "model", live=True, builds=True, makes="eager's values", fresh=True),
        StepKind(
            "Capture",
            "capture",
            live=True,
            builds=True,
            makes="the captured program",
            leaves="captured",
            exports=True,
            fresh=True,
        ),
        StepKind("Translate", "translate", live=True, exports=True),
        StepKind("Plugin", "translate", "Translate", live=True, builds=True, makes="the exported file", exports=True),
        StepKind("Check", "check", reads=("model",)),
        StepKind("Run", "run", reads=(*_FILE, "oracles")),
        StepKind(
            "Oracle", "model", live=True, builds=True, makes="eager in float64", excused=True, reads=("reference",)
        ),
        StepKind(
            "Ties",
            "run",
            live=True,
            builds=True,
            makes="eager with the file's choices",
            excused=True,
            reads=_FILE,
        ),
        StepKind("Measure", "run", alone=True, local=True, reads=_FILE),
        StepKind(
            "Eager",
            "model",
            live=True,
            builds=True,
            makes="the model that was timed",
            alone=True,
            local=True,
            excused=True,
            fresh=True,
        ),
    )
}
"""The steps in the order in which a cell takes them."""


def _those(attribute: str) -> frozenset[Mnemonic]:
    return frozenset(kind.mnemonic for kind in STEPS.values() if getattr(kind, attribute))


MNEMONICS: tuple[Mnemonic, ...] = tuple(dict.fromkeys(kind.mnemonic for kind in STEPS.values()))
"""The kinds of actions, in order."""
EXPORTING = _those("exports")
"""Actions whose time is part of what the export of a cell takes."""
ALONE = _those("alone")
"""Actions that are executed alone on the machine, after everything else."""
LOCAL = _those("local")
"""Actions whose results say something about one host: they never leave its store."""
EXCUSED = _those("excused")
"""Actions that a cell can do without: their failures are not the cell's."""
MAKES: dict[Mnemonic, str] = {kind.mnemonic: kind.makes for kind in STEPS.values() if kind.makes}
"""What a sentence calls that which a step makes of the model that it builds."""
FAILURE_STAGE: dict[Mnemonic, Stage] = {kind.mnemonic: kind.failure for kind in STEPS.values()}
"""Where a failure of an action belongs when its exception does not say so itself."""


def modules() -> dict[str, str]:
    """Returns where each step's `execute` is, and the class of the workbench: an order carries its own copy."""
    return {kind.name: kind.module for kind in STEPS.values()} | {WORKBENCH: "batch_export.stages.workbench"}
