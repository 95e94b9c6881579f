"""Captured programs as ONNX models that are not at their opset yet: what all opsets share that translate alike.

Arrives: what translation and optimisation made for one opset, and for which opsets they would make the same. Leaves:
copies of it for these. What a caller brings (translations, passes) may do something else every time, and is not kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
from torch._subclasses.fake_tensor import unset_fake_temporarily

from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.graph import block_bodies
from batch_export.exporter.optimise import passes as optimise
from batch_export.exporter.optimise.passes import PassReport
from batch_export.exporter.program import naming
from batch_export.exporter.report.journal import Journal
from batch_export.exporter.translate.program import Translated, translate_program
from batch_export.exporter.translate.registry import OnnxRegistry


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model before its opset.

    Attributes:
        translated: what was translated; its model is optimised by now.
        passes: what the optimiser did.
        opsets: the lowest and the highest opset for which this would be the same.
    """

    translated: Translated
    passes: Sequence[PassReport]
    opsets: tuple[int, int]

    @property
    def model(self) -> ir.Model:
        """The model, to be brought to an opset."""
        return self.translated.model

    def copied(self) -> Prepared:
        """The same with a model of its own; weights are shared."""
        return replace(
            self, translated=replace(self.translated, model=self.model.clone(), operator_seconds={}, bodies=[])
        )


def prepare(
    captured: Captured,
    registry: OnnxRegistry,
    passes: Sequence[Any],
    journal: Journal,
    *,
    optimize: bool,
    mutations: str,
    reusable: bool,
) -> Prepared:
    """Translates and optimises a captured program, or takes what another opset had the same of.

    Args:
        captured: the program.
        registry: translations, at the opset.
        passes: a caller's own, after the optimiser.
        journal: gets the stages' seconds, and which operators there are.
        optimize: whether the optimiser runs.
        mutations: one of `boundary.MUTATIONS`.
        reusable: whether a copy is kept for further opsets.
    """
    options = {"optimize": optimize, "mutations": mutations, "prefer_native": registry.prefer_native}
    known = _key(options, captured)
    reusable = reusable and not registry.has_custom and not passes
    with journal.stage("translate"), unset_fake_temporarily():  # the model's tensors may be fake, constants are not
        if reusable and (found := _find(captured, known, registry.opset_version)) is not None:
            journal.operators = found.translated.operators
            return found
        translated = translate_program(
            captured.traced,
            registry,
            captured.axis_names,
            lowest=captured.lowest,
            fold=optimize,
            mutations=mutations,
        )
    journal.operators = translated.operators
    model, bodies, apart = translated.model, translated.bodies, broadcast(captured)
    if apart or not optimize:  # names of axes that are kept apart are another block's apart as well
        block_bodies.written_out(model, bodies)
        naming.keep_apart(model, apart)  # passes take axes of one name for equally large
        bodies = []
    reports: Sequence[PassReport] = ()
    if optimize or passes:
        with journal.stage("optimise"), naming.ends_apart(model, apart):
            reports = naming.optimised(model, lambda: optimise.optimise(model, passes, bodies, standard=optimize))
    made = Prepared(translated, reports, registry.alike)
    if reusable:
        _keep(captured, known, made)
    return made


def broadcast(captured: Captured) -> list[str]:
    """Axes that are one in the program, and that the model broadcasts."""
    return [guard.unites[0] for guard in captured.united if guard.holds_beyond]


def _find(captured: Captured, options: Hashable, opset: int) -> Prepared | None:
    """A copy of what was kept for an opset; None where nothing was."""
    kept = [one for one in captured.prepared.get(options, ()) if isinstance(one, Prepared)]
    found = next((one for one in kept if one.opsets[0] <= opset <= one.opsets[1]), None)
    return None if found is None else found.copied()


def _keep(captured: Captured, options: Hashable, made: Prepared) -> None:
    """Keeps a copy for other opsets, as long as the capture lives."""
    captured.prepared.setdefault(options, []).append(made.copied())


def _key(options: Mapping[str, Hashable], captured: Captured) -> Hashable:
    """What tells one way of translating a captured program from another."""
    return (*sorted(options.items()), *captured.axis_names.items())
