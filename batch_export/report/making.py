"""What a cell's outcome was made of, as far as a run records it: two runs that differ in it explain another outcome.

A run's specs, toolchain and records arrive; short digests by short names leave, and whether two of them agree. Where
only one side has a name, as where a cell ended early, nothing is said by it.
"""

from __future__ import annotations

from collections.abc import Mapping

from batch_export.digest import digest_value
from batch_export.exact_json import exact
from batch_export.record import Record
from batch_export.runner.evidence_digests import SHORT
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import RunSpec

_OF_SOURCES = ("Reference", "Capture")
"""Actions whose keys have nothing in them that an earlier action gave."""

Making = dict[str, str]


class Makings:
    """Those of the cells of one run."""

    def __init__(self, spec: RunSpec, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._expectations = spec.expectations
        self._specs = {
            axis: {one.name: one for one in specs}
            for axis, specs in (
                ("model", spec.matrix.models),
                ("provider", spec.matrix.providers),
                ("exporter", spec.matrix.exporters),
            )
        }
        runner, world = spec.runner, toolchain
        limits = (runner.timeout_s, runner.memory_gb, runner.threads, runner.retries, runner.allow_flaky, runner.engine)
        self._common = {
            "asked": _short([spec.tolerances, limits]),
            "toolchain": _short(
                [world.own, world.environments, world.served, world.plugins, world.layers, world.named]
            ),
        }
        self._known: dict[tuple[str, str], str] = {}

    def of(self, record: Record) -> Making:
        """Returns a cell's."""
        cell = record.cell
        declared = [one for one in self._expectations if one.matches(cell)]
        found = {**self._common, "expectations": _short(declared) if declared else ""}
        found |= {axis: self._spec(axis, getattr(cell, axis)) for axis in self._specs}
        found |= {one.mnemonic: one.key[:SHORT] for one in record.actions if one.mnemonic in _OF_SOURCES}
        return found | record.seen

    def _spec(self, axis: str, name: str) -> str:
        """A digest of what the config says, and of the sources that it names."""
        if (axis, name) not in self._known:
            spec = self._specs[axis].get(name)
            source = self._toolchain.targets.get(getattr(spec, "target", ""), "")
            self._known[axis, name] = _short([exact(spec), source])  # arguments hold what JSON has no word for
        return self._known[axis, name]


def agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two makings are alike in everything that both have."""
    return all(other.get(name, state) == state for name, state in one.items())


def _short(value: object) -> str:
    return digest_value(value)[:SHORT]
