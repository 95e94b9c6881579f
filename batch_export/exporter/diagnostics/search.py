"""The earliest wrong value of an ONNX file, found in few sessions.

A sliced file, its inputs and eager's values arrive; a `Suspect` leaves: a value whose inputs agree with eager's and
which does not, taken out of its surroundings to be sure. Values are compared a few at a time and freed. Nothing is said
about whose fault it is (`localise.py` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.diagnostics.slices import SlicedFile
from batch_export.exporter.graph.metadata import FX_NODE
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import default_tolerance
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.words import class_and_line

PROBES = 7
"""Values fetched in one session: n values take log n to the base 8 sessions."""
_SCANNED_AT_ONCE = 16
_SCALE = 0.1
"""How much of the relative tolerance, times the largest value of the tensor, is added to the absolute one: an
intermediate near zero among large ones carries their rounding."""


@dataclass(slots=True)
class Suspect:
    """A value that is wrong.

    Attributes:
        value: its name in the file.
        inputs: values that it is computed from, all of which agree with eager's.
        error: what the runtime said, if it refused.
        facts: how the value compares with eager's, computed from eager's inputs; None after an error.
        isolated: whether it is wrong when computed from eager's inputs; False: the error grew on the way to it.
        fed: eager's values of `inputs`.
        expected: eager's value.
        actual: the file's.
    """

    value: str
    inputs: tuple[str, ...] = ()
    error: str = ""
    facts: OutputFacts | None = None
    isolated: bool = True
    fed: dict[str, Value] = field(default_factory=dict)
    expected: Value | None = None
    actual: Value | None = None


def differs(facts: OutputFacts) -> bool:
    """Returns whether a value differs from eager's by more than rounding carried along may explain."""
    if facts.actual_dtype != facts.expected_dtype or facts.actual_shape != facts.expected_shape:
        return True
    if facts.non_finite_mismatches or (facts.max_abs is None and facts.unequal):
        return True
    tolerance = default_tolerance(facts.expected_dtype)
    scale = facts.hull[-1][0] if facts.hull else 0.0
    atol = tolerance.atol + _SCALE * tolerance.rtol * scale
    return any(error > atol + tolerance.rtol * size for size, error in facts.hull)


class Search:
    """Looks for the earliest wrong value.

    Args:
        file: the file.
        eager: eager's values.
        feeds: the file's inputs.
        provider: where and how parts are run.
    """

    def __init__(
        self, file: SlicedFile, eager: EagerValues, feeds: Mapping[str, Value], provider: ProviderSpec
    ) -> None:
        self._file = file
        self._eager = eager
        self._feeds = feeds
        self._provider = provider
        self._known: dict[str, bool] = {}
        self._errors: dict[str, str] = {}
        self.fx_names = self._matched()

    def _matched(self) -> dict[str, str]:
        """ONNX value -> FX value, in the file's order; outputs by position, inner ones by name."""
        matched: dict[str, str] = {}
        of_output = dict(zip(self._file.outputs, self._eager.output_names, strict=False))
        for name in self._file.order:
            if name in of_output:
                matched[name] = of_output[name]
                continue
            if name not in self._eager.nodes:
                continue
            node = self._file.producer(name)
            origin = {entry.key: entry.value for entry in node.metadata_props}.get(FX_NODE, "") if node else ""
            made_by = origin.partition(" ")[0].removeprefix("%")
            # A name that a nested graph had taken first: another node's value bears this one's name.
            if made_by and made_by != self._eager.nodes[name].name and made_by in self._eager.nodes:
                continue
            matched[name] = name
        return matched

    def first_wrong(self, targets: Sequence[str] | None = None) -> Suspect | None:
        """Returns the earliest wrong value among those that `targets` (by default all outputs) depend on."""
        targets = [name for name in (targets or self._file.outputs) if name in self.fx_names]
        wrong = self._first_of(targets)
        if wrong is None:
            return None
        while True:
            within = self._file.ancestors([wrong])
            candidates = [name for name in self.fx_names if name in within]
            wrong = self._bisect(candidates)
            inputs = self._frontier(wrong)
            earlier = self._first_of([name for name in inputs if name in self.fx_names])
            if earlier is None:
                break
            wrong = earlier
        suspect = self._isolate([wrong])[0]
        if not suspect.isolated:
            return self._scan(wrong, suspect)
        return suspect

    def _bisect(self, candidates: Sequence[str]) -> str:
        """Returns a wrong candidate whose predecessor in the order agrees; the last candidate is known to be wrong."""
        low, high = -1, len(candidates) - 1
        while high - low > 1:
            count = min(PROBES, high - low - 1)
            places = sorted({low + (high - low) * (step + 1) // (count + 1) for step in range(count)} - {low, high})
            self._learn([candidates[place] for place in places])
            wrong = [place for place in places if self._known[candidates[place]]]
            high = wrong[0] if wrong else high
            low = max([low, *(place for place in places if place < high)])
        return candidates[high]

    def _first_of(self, names: Sequence[str]) -> str | None:
        self._learn(names)
        return next((name for name in self.fx_names if name in names and self._known[name]), None)

    def _learn(self, names: Sequence[str]) -> None:
        """Finds out which values are wrong; a refusal is narrowed down to the values that it stands for."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        for start in range(0, len(unknown), PROBES):
            self._learn_some(unknown[start : start + PROBES])

    def _learn_some(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            actual = self._file.run(names, self._feeds, self._provider)
        except MemoryError:
            raise
        except Exception as error:
            if len(names) > 1:
                half = len(names) // 2
                self._learn_some(names[:half])
                self._learn_some(names[half:])
            else:
                self._known[names[0]] = True
                self._errors[names[0]] = class_and_line(error)
            return
        expected = self._eager.compute([self.fx_names[name] for name in names])
        for name in names:
            value = expected.get(self.fx_names[name])
            self._known[name] = value is not None and differs(compare(name, value, actual[name]))

    def _frontier(self, name: str) -> list[str]:
        """Returns the nearest values before one that have a counterpart in eager, and the inputs among them."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        waiting = list(self._file.reads(name))
        while waiting:
            one = waiting.pop()
            if one in seen or self._file.is_initializer(one):
                continue
            seen.add(one)
            if one in self.fx_names or one in self._feeds:
                found[one] = None
            else:
                waiting = [*waiting, *self._file.reads(one)]
        return list(found)

    def _isolate(self, names: Sequence[str]) -> list[Suspect]:
        """Computes each value from eager's values of what it depends on; one pass of eager for all of them."""
        inputs = {name: self._frontier(name) for name in names}
        inner = [one for found in inputs.values() for one in found if one in self.fx_names]
        expected = self._eager.compute([self.fx_names[one] for one in dict.fromkeys([*names, *inner])])
        suspects = []
        for name in names:
            suspect = Suspect(name, tuple(inputs[name]), expected=expected.get(self.fx_names[name]))
            for one in inputs[name]:
                value = expected.get(self.fx_names[one]) if one in self.fx_names else self._feeds[one]
                if value is not None:
                    suspect.fed[one] = value
            suspects.append(self._judged(suspect))
        return suspects

    def _judged(self, suspect: Suspect) -> Suspect:
        inside = {name: value for name, value in suspect.fed.items() if name not in self._feeds}
        try:
            suspect.actual = self._file.run([suspect.value], self._feeds, self._provider, fed=inside)[suspect.value]
        except MemoryError:
            raise
        except Exception as error:
            suspect.error = class_and_line(error)
            return suspect
        if suspect.expected is not None:
            suspect.facts = compare(suspect.value, suspect.expected, suspect.actual)
            suspect.isolated = differs(suspect.facts)
        return suspect

    def _scan(self, first: str, fallback: Suspect) -> Suspect:
        """Looks through the values from `first` on, each by itself: rounding may have grown before a wrong node."""
        names = list(self.fx_names)
        later = names[names.index(first) + 1 :]
        for start in range(0, len(later), _SCANNED_AT_ONCE):
            for suspect in self._isolate(later[start : start + _SCANNED_AT_ONCE]):
                if suspect.isolated:
                    return suspect
        return fallback
