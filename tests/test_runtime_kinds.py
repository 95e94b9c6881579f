"""The table of runtimes: another kind is a module with its session, and a row."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served_package import entry_point
from sweeping import CORE, model

from batch_export.action import ModelArtifact
from batch_export.config.run import provider_spec
from batch_export.errors import UsageError
from batch_export.numbers.values import Value
from batch_export.plan.keys import measure_action
from batch_export.plan.matrix import expand
from batch_export.runtime import registered
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


def test_a_kind_that_nobody_brings_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"provider/mine: kind must be one of onnxruntime, .* did you mean 'openvino'"):
        provider_spec("mine", {"kind": "openvin"})
    with pytest.raises(UsageError, match="No runtime is called 'openvin'; known: onnxruntime, reference, openvino"):
        registered.runtime("openvin")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for installed plug-ins."""
    monkeypatch.syspath_prepend(str(tmp_path))
    registered.plugins.cache_clear()
    yield tmp_path
    registered.plugins.cache_clear()


def test_a_package_brings_a_runtime_and_is_not_imported_until_a_config_names_it(plugins: Path) -> None:
    entry_point(plugins, "humming", "hum", "hum_runtime:HUM")
    (plugins / "hum_runtime.py").write_text(
        "from batch_export.runtime.kinds import Runtime\nHUM = Runtime('hum', 'Hum', 'msgspec', ('msgspec',), None)\n"
    )
    assert "hum" in registered.kinds()
    assert "hum_runtime" not in sys.modules
    assert provider_spec("mine", {"kind": "hum"}).kind == "hum"
    assert registered.runtime("hum").called == "Hum"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "import no_such_library",
            "package humming cannot be imported: ModuleNotFoundError: No module named 'no",
        ),
        (
            "HUM = 5",
            r"entry point 'hum' \(batch_export.runtimes\) of the package humming is a int; it must be",
        ),
        (
            "from batch_export.runtime.kinds import Runtime\nHUM = Runtime('ham', 'Ham', 'msgspec', (), None)",
            "of the package humming is a Runtime named 'ham'; it must be .* named 'hum'",
        ),
    ],
)
def test_a_plug_in_that_is_none_is_told_with_its_package(
    source: str, sentence: str, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "hum_runtime", raising=False)
    entry_point(plugins, "humming", "hum", "hum_runtime:HUM")
    (plugins / "hum_runtime.py").write_text(source)
    importlib.invalidate_caches()
    with pytest.raises(UsageError, match=sentence):
        provider_spec("mine", {"kind": "hum"})
    sys.modules.pop("hum_runtime", None)


def test_two_packages_that_bring_one_kind_are_both_named(plugins: Path) -> None:
    for name in ("humming", "singing"):
        entry_point(plugins, name, "hum", f"{name}:HUM")
    with pytest.raises(UsageError, match=r"'hum' is brought by (humming and by singing|singing and by humming)\."):
        registered.runtime("hum")
    entry_point(plugins, "other", "openvino", "other:OPENVINO")
    registered.plugins.cache_clear()
    with pytest.raises(UsageError, match="'openvino' is brought by other and by batch_export"):
        registered.runtime("openvino")


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
