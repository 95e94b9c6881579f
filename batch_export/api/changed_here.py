"""Whether a function is another one in this process than where its file is imported anew, as children do.

Texts of two processes arrive (`stages/code_state.py`), names leave. Code and defaults are compared, and values that a
file gives once and for all, such as numbers, functions, dtypes and sets: not what the code sets itself as it runs
(caches, counters), and not what a call gives, which may be another thing in each process (times, seeds).
"""

from __future__ import annotations

from collections.abc import Mapping

from batch_export.api.module_sources import Sources, module_of
from batch_export.stages.code_state import CLASS, CODE, MOST, NAMED, OPTIMISED, OTHER, PLAIN, SET, UNCERTAIN, text_of

_MADE_LATER = frozenset(map(text_of, (None, False)))
"""Texts of what mostly stands for an object that is made when it is needed."""


def changed_here(here: Mapping[str, str], anew: Mapping[str, str]) -> list[str]:
    """Returns the names of what is another thing here, sorted.

    Args:
        here: texts by name in this process.
        anew: the same in a process that has imported the files just now.
    """
    if here.get(OPTIMISED) != anew.get(OPTIMISED):
        return []
    other = [name for name in anew if name in here and here[name] != anew[name]]
    own = _methods_of_one_side(here, anew)
    sources = Sources()
    modules = {*map(module_of, anew)} if other or own else set()
    stored = {one for module in modules for one in sources.stored(module)}
    stored |= {
        name.rpartition(".")[2]
        for name in other
        if anew[name].startswith(f"{SET} ") and not sources.is_only_asked(name.rpartition(".")[2], modules)
    }
    told = (name for name in (*other, *own) if name.rpartition(".")[2] not in stored)
    return sorted(name for name in told if name in own or _is_another(anew[name], here[name], name, sources))


def _methods_of_one_side(here: Mapping[str, str], anew: Mapping[str, str]) -> set[str]:
    """Methods that a class has in one of the processes alone: added over one that it inherits, or taken away."""
    if max(len(here), len(anew)) >= MOST:  # not all was looked at
        return set()
    classes = {text.split(" ")[1] for name, text in anew.items() if text.startswith(CLASS) and here.get(name) == text}
    return {
        name
        for name in here.keys() ^ anew.keys()
        if name.rpartition(".")[0] in classes and here.get(name, anew.get(name, "")).startswith(CODE)
    }


def _is_another(before: str, now: str, name: str, sources: Sources) -> bool:
    kind, *words = before.split(" ")
    module = module_of(name)
    if sources.is_as_installed(module, name.removeprefix(f"{module}."), now):
        return False
    if kind == CODE and now.startswith(f"{CODE} "):
        of_now = now.split(" ")[1:]
        return words[0] != of_now[0] or UNCERTAIN not in (words[-1], of_now[-1])
    if kind in (PLAIN, NAMED, SET):
        if before in _MADE_LATER and now == OTHER:
            return False
        return sources.is_fixed(module, name.removeprefix(f"{module}.").split("."), installed=kind != PLAIN)
    return bool(words)
