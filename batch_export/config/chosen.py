"""The models of a matrix: from patterns to specs, out of config files and out of collections, sampled and shared out.

Patterns arrive in the order of `matrix.models`; specs leave in that order, each model once. A model of a collection
that has no configuration is a spec with the reason in `skip`. Nothing is run here; `collections/` may start a child.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from batch_export.collections.described import Described, described
from batch_export.collections.kinds import Collection
from batch_export.collections.registered import collection, collections
from batch_export.config.groups import TAG, ConfigGroups, unknown
from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.spec import ModelSpec
from batch_export.words import nearest

_LEAST_LETTERS = 3
_LIKENESS = 0.7
_MOST_NEAR = 3
_WILDCARD = re.compile(r"[*?]|\[[^\]]*\]?")
_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Share:
    """Which of the chosen models a run takes.

    Attributes:
        sample: how many, drawn at random; 0: all.
        seed: of the draw.
        shard: `2/8` for the second of eight runs that together take all; empty: all.
    """

    sample: int = 0
    seed: int = 0
    shard: str = ""

    def of(self, names: Sequence[str]) -> list[str]:
        """Returns the share, in the order of the names.

        Raises:
            UsageError: the sample is negative, the shard is not `i/n`, or none is left for it.
        """
        return self.part_of(self.sample_of(names))

    def sample_of(self, names: Sequence[str]) -> list[str]:
        """Returns the sample, in the order of the names: what the shards together take.

        Raises:
            UsageError: the sample is negative.
        """
        if self.sample < 0:
            raise UsageError(f"matrix.sample is a number of models, or 0 for all; got {self.sample}")
        kept = list(names)
        if 0 < self.sample < len(kept):
            drawn = set(random.Random(self.seed).sample(sorted(kept), self.sample))
            kept = [name for name in kept if name in drawn]
        return kept

    def part_of(self, names: Sequence[str]) -> list[str]:
        """Returns the shard of a sample.

        Raises:
            UsageError: the shard is not `i/n`, or none is left for it.
        """
        kept = list(names)
        if not self.shard:
            return kept
        found = _SHARD.fullmatch(self.shard)
        index, count = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= index <= count:
            raise UsageError(f"runner.shard must be such as 2/8, the second of eight; got {self.shard!r}")
        part = kept[index - 1 :: count]
        if not part:
            raise UsageError(f"runner.shard={self.shard} has no model: {len(kept)} are chosen. Next step: fewer shards")
        return part


def models(patterns: Sequence[str], groups: ConfigGroups, share: Share) -> tuple[ModelSpec, ...]:
    """Returns the models that patterns choose.

    Args:
        patterns: names, globs, `tag:<word>` and `own` of config files; `<collection>:<glob>` and
            `<collection>:tag:<word>` of collections.
        groups: where config files are found.
        share: which of them are taken.

    Raises:
        UsageError: a pattern chooses nothing, or a configuration is wrong.
    """
    return specs(share.part_of(sampled(patterns, groups, share)), groups)


def sampled(patterns: Sequence[str], groups: ConfigGroups, share: Share) -> list[str]:
    """Returns the names that patterns choose, all that the shards together take; see `models`."""
    used: dict[str, Collection] = {}
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if not is_of_collection(pattern):
            chosen.update(dict.fromkeys(groups.select("model", [pattern])))
            continue
        owner, _, inner = pattern.partition(":")
        used[owner] = used.get(owner) or _known(owner, pattern)
        chosen.update(dict.fromkeys(f"{owner}:{name}" for name in _matching(used[owner], inner)))
    return share.sample_of(list(chosen))


def specs(taken: Sequence[str], groups: ConfigGroups) -> tuple[ModelSpec, ...]:
    """Returns the models of these names, in their order.

    Raises:
        UsageError: a configuration is wrong.
    """
    answers: dict[str, Described] = {}
    for owner in dict.fromkeys(name.partition(":")[0] for name in taken if is_of_collection(name)):
        names = [name.partition(":")[2] for name in taken if name.startswith(f"{owner}:")]
        found = described(collection(owner), names, tell=lambda sentence: print(sentence, file=sys.stderr))
        answers |= {f"{owner}:{name}": answer for name, answer in found.items()}
    return tuple(
        _collected(name, answers[name]) if name in answers else model_spec(name, groups.load("model", name))
        for name in taken
    )


def is_of_collection(pattern: str) -> bool:
    """Whether a pattern is about the names of a collection, not about config files."""
    return ":" in pattern and not pattern.startswith(TAG)


def of_collection(pattern: str) -> dict[str, tuple[str, ...]]:
    """Returns the models of a collection that a pattern chooses, with their tags; nothing is built.

    Raises:
        UsageError: there is no such collection, its package is missing, or the pattern chooses nothing.
    """
    owner, _, inner = pattern.partition(":")
    found = _matching(_known(owner, pattern), inner)
    return {f"{owner}:{name}": tags for name, tags in found.items()}


def _known(owner: str, pattern: str) -> Collection:
    if owner not in collections():
        known = [TAG, *(f"{name}:" for name in collections())]
        raise UsageError(unknown("collection", f"{owner}:", known) + f" in {pattern!r}")
    return collection(owner)


def _matching(one: Collection, inner: str) -> dict[str, tuple[str, ...]]:
    names: Mapping[str, tuple[str, ...]] = one.names()
    wanted = inner.removeprefix(TAG)
    if inner.startswith(TAG):
        found = {name: tags for name, tags in names.items() if wanted in tags}
        known = {TAG + tag for tags in names.values() for tag in tags}
        near = nearest(inner, sorted(known))
    else:
        found = {name: tags for name, tags in names.items() if fnmatchcase(name, inner)}
        near = _near_names(inner, names)
    if not found:
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(
            f"None of the {len(names):,} models of {one.name} is {inner!r}{hint}. "
            f"Next step: `list models '{one.name}:*'` prints them with their tags"
        )
    return found


def _near_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that are spelled or begin nearly as the pattern, wildcards and case apart; none that is far-fetched."""
    plain = _WILDCARD.split(pattern.lower())
    word = max(plain, key=len)
    if len(word) < _LEAST_LETTERS:
        return []
    spelled = {name.lower(): name for name in names}
    begun = {name[: len(word)]: whole for name, whole in reversed(spelled.items())} if len(plain) > 1 else {}
    near = [pool[one] for pool in (begun, spelled) for one in nearest(word, pool, _MOST_NEAR, least=_LIKENESS)]
    return list(dict.fromkeys(near))[:_MOST_NEAR]


def _collected(name: str, answer: Described) -> ModelSpec:
    if isinstance(answer, str):
        return ModelSpec(name, target="", arguments={}, inputs=(), skip=f"it cannot be built: {answer}")
    try:
        return model_spec(name, answer)
    except UsageError as error:
        return ModelSpec(name, target="", arguments={}, inputs=(), skip=f"its description is wrong: {error}")
