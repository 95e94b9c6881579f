"""The table of runtimes: another kind is a module with its session, and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeping import CORE, model

from batch_export.action import ModelArtifact
from batch_export.config.run import provider_spec
from batch_export.errors import UsageError
from batch_export.numbers.values import Value
from batch_export.plan.keys import measure_action
from batch_export.plan.matrix import expand
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.session import open_session
from batch_export.sources.toolchain import toolchain_for
from batch_export.spec import MatrixSpec
from batch_export.stages.run import fallen_back
from batch_export.sweeps.planned import installed


class Echo:
    """A runtime that gives its inputs back."""

    def __init__(self, path: Path, provider: ProviderSpec, threads: int) -> None:
        assert path.is_file()
        self.input_names, self.output_names = ("x",), ("x",)
        self.input_shapes: tuple[tuple[int | None, ...] | None, ...] = (None,)
        self.placement = {provider.execution_provider: threads}
        self.load_seconds = 0.0

    def prepare(self, feeds: Mapping[str, Value]) -> Callable[[], Sequence[Any]]:
        return lambda: list(feeds.values())

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        return list(feeds.values())

    def close(self) -> None:
        pass


def matrix(provider: ProviderSpec) -> MatrixSpec:
    return MatrixSpec((model("m"),), (18,), ("static",), (provider,), (CORE,))


def test_another_kind_is_a_module_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config may name it, its packages are in the key, a file opens in it, and its absence is told."""
    echo = Runtime("echo", "Echo", "msgspec", ("msgspec", "rich"), Echo, lambda: ["Loud"], frozenset())
    monkeypatch.setitem(RUNTIMES, "echo", echo)
    with pytest.raises(UsageError, match="execution_provider is missing"):
        provider_spec("loud", {"kind": "echo"})
    loud = provider_spec("loud", {"kind": "echo", "execution_provider": "Loud"})
    assert expand(matrix(loud), installed([loud]))[0].skip == ""
    quiet = replace(loud, execution_provider="Quiet")
    skip = expand(matrix(quiet), installed([quiet]))[0].skip
    assert skip == "provider loud is not installed: this msgspec has no Quiet"
    tools = toolchain_for([], [], providers=[loud])
    action = measure_action(ModelArtifact("f"), "r", loud, MeasureSpec(), tools)
    assert {"version.msgspec", "version.rich"} <= dict(action.entries).keys()
    session = open_session(Path(__file__), loud, 3)
    assert session.placement == {"Loud": 3}
    assert fallen_back(session, loud) is None
    assert fallen_back(session, replace(loud, execution_provider="Quiet")) is not None
