"""What forward reads from outside of the model: clocks, and random bytes of the operating system.

Arrives: a module, while a strategy captures it. Leaves: what its code reads, with the lines, where the model gives
something else at another time: that is in the file for ever. Also the lines at which it draws from `random` and
`numpy.random`. Nothing is read otherwise than without; what only measures how long something takes is not told.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.trial import is_fake, outputs

_LATER = 400 * 86_400 + 7 * 3_600 + 13 * 60 + 17.357
"""Seconds by which a second run is later, so that it is another day, weekday, hour, minute and second."""
_LATER_STILL = 1.618 * _LATER
_SECONDS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_OF_A_MOMENT = ("localtime", "gmtime", "ctime")
"""Functions that take the present for a moment which is not given."""
_BETWEEN = frozenset((__file__, *(module.__file__ for module in (random, secrets, uuid))))
"""Sources that hand on what the operating system draws."""

_NOTED: ContextVar[dict[str, str]] = ContextVar("_NOTED")
_SHIFT: ContextVar[float] = ContextVar("_SHIFT", default=0.0)
_Names = dict[str, Any]


@contextlib.contextmanager
def outside_numbers() -> Iterator[dict[str, str]]:
    """Gives a dict that has, in the end, what was read and where: a clock, a module of numbers -> `file:line`."""
    before = _NOTED.set({})
    try:
        yield _NOTED.get()
    finally:
        _NOTED.reset(before)


def read_outside(
    noted: Mapping[str, str], module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[str]:
    """What of it is in the program, in words, after runs of the model at different times.

    Args:
        noted: what `outside_numbers` gave.
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
    """
    found = [f"{name} (at {line})" for name, line in noted.items() if name not in _DRAWN]
    return found if found and _differs(module, args, kwargs) else []


def _differs(module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    if is_fake(module, args, kwargs):
        return True
    with _noting(module):
        runs = []
        for shift in (0.0, _LATER, _LATER_STILL):
            before = _SHIFT.set(shift)
            try:
                runs.append(outputs(module, args, kwargs))
            except Exception:
                return True
            finally:
                _SHIFT.reset(before)
    first, *others = runs
    return any(len(first) != len(one) or not all(map(_is_same, first, one)) for one in others)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


@contextlib.contextmanager
def outside_noted(module: torch.nn.Module) -> Iterator[None]:
    """Has what a module reads noted while it is captured."""
    if _NOTED.get(None) is None:
        yield
        return
    with _noting(module):
        yield


@contextlib.contextmanager
def _noting(module: torch.nn.Module) -> Iterator[None]:
    replaced = _replacements()
    before: list[tuple[_Names, str, Any]] = []
    for names in _namespaces(module):
        for name, value in list(names.items()):
            if (other := replaced.get(id(value))) is not None:
                before.append((names, name, value))
                names[name] = other
    try:
        with patch.object(random.Random, "seed", _unseeded(random.Random.seed)):
            yield
    finally:
        for names, name, value in before:
            names[name] = value


def _namespaces(module: torch.nn.Module) -> list[_Names]:
    """Where functions are looked up: their own modules, and those of the model's code."""
    own: list[ModuleType | None] = [time, os, random, uuid, datetime, np.random]
    own += [sys.modules.get(kind.__module__) for kind in {type(one) for one in module.modules()}]
    found = [vars(one) for one in own if one in own[:6] or is_users(getattr(one, "__file__", None) or "<")]
    forward = getattr(getattr(module.forward, "__func__", module.forward), "__globals__", None)
    if forward is not None and is_users(forward.get("__file__") or "<"):
        found.append(forward)
    return list({id(one): one for one in found}.values())


def _replacements() -> dict[int, Any]:
    """By the id of a function or class, what notes who calls it."""
    found: dict[int, Any] = {}
    for name in _SECONDS:
        clock, in_nanoseconds = getattr(time, name), getattr(time, f"{name}_ns")
        found[id(clock)] = _noted(f"time.{name}", _shifted(clock, 1))
        found[id(in_nanoseconds)] = _noted(f"time.{name}_ns", _shifted(in_nanoseconds, 1_000_000_000))
    now: Callable[[], float] = time.time
    for name in _OF_A_MOMENT:
        found[id(getattr(time, name))] = _noted(f"time.{name}", _of_a_moment(getattr(time, name), now))
    found[id(time.strftime)] = _noted("time.strftime", _of_a_format(time.strftime, time.localtime, now))
    for source in (os.urandom, uuid.uuid1):
        found[id(source)] = _noted(_BYTES if source is os.urandom else "uuid.uuid1", source)
    for kind in (datetime.datetime, datetime.date):
        found[id(kind)] = _calendar(kind, now)
    for module, names in _DRAWN.items():
        owner = random if module == "random" else np.random
        found.update(
            {id(one): _noted(module, one) for name in names if (one := getattr(owner, name, None)) is not None}
        )
    return found


_BYTES = "random bytes of the operating system"
_DRAWN: Mapping[str, tuple[str, ...]] = {
    "random": tuple(name for name in random.__all__ if name.islower() and name not in ("seed", "getstate", "setstate")),
    "numpy.random": tuple(
        name
        for name in np.random.__all__
        if name.islower() and name not in ("seed", "get_state", "set_state", "default_rng")
    ),
}


def _noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        noted = _NOTED.get(None)
        if noted is not None and name not in noted and (line := _users_line(sys._getframe(1))):
            noted[name] = line
        return function(*args, **kwargs)

    return read


def _unseeded(seed: Callable[..., None]) -> Callable[..., None]:
    """A generator's `seed`, which takes the operating system's bytes where it is given nothing."""
    noted = _noted(_BYTES, seed)

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        (noted if a is None else seed)(self, a, version)

    return seeded


def _users_line(frame: FrameType | None) -> str:
    """`file:line` of the model's code that called; empty where something else did, such as a logger."""
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    if frame is None or not is_users(frame.f_code.co_filename):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _shifted(clock: Callable[[], Any], unit: int) -> Callable[[], Any]:
    return lambda: clock() + type(clock())(_SHIFT.get() * unit)


def _of_a_moment(function: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    return lambda moment=None: function(now() + _SHIFT.get() if moment is None else moment)


def _of_a_format(
    function: Callable[..., Any], local: Callable[[float], Any], now: Callable[[], float]
) -> Callable[..., Any]:
    return lambda text, moment=None: function(text, local(now() + _SHIFT.get()) if moment is None else moment)


def _calendar(kind: Any, now: Callable[[], float]) -> Any:
    """`datetime.datetime` or `datetime.date`, whose present is noted; what it makes are the real ones."""

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

    def present(zone: Any = None) -> Any:
        moment = now() + _SHIFT.get()
        return kind.fromtimestamp(moment) if zone is None else kind.fromtimestamp(moment, zone)

    name = f"datetime.{kind.__name__}"
    names: dict[str, Any] = {"__new__": lambda cls, *args, **kwargs: kind(*args, **kwargs)}
    names["today"] = staticmethod(_noted(f"{name}.today", present))
    if kind is datetime.datetime:
        names["now"] = staticmethod(_noted(f"{name}.now", lambda tz=None: present(tz)))
        utc = datetime.UTC
        names["utcnow"] = staticmethod(_noted(f"{name}.utcnow", lambda: present(utc).replace(tzinfo=None)))
    return Kind(kind.__name__, (kind,), names)
