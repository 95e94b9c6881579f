"""environments/, the verb `env`, and runtimes that run in environments of their own: all of it without a network."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import served_package as package

from batch_export.action import ModelArtifact
from batch_export.cli.main import main
from batch_export.config.run import provider_spec
from batch_export.environments import shelf
from batch_export.environments.making import EnvironmentUnavailableError, environment_for, node_version
from batch_export.environments.request import request
from batch_export.errors import UsageError
from batch_export.numbers.values import RawTensor
from batch_export.plan.keys import measure_action
from batch_export.runtime import latency, registered
from batch_export.runtime.failures import LoadError, OptionsRejectedError, ProviderUnavailableError
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session
from batch_export.runtime.worker import session as worker_session
from batch_export.runtime.worker.failures import WorkerEndedError, WorkerRefusedError
from batch_export.sources.toolchain import toolchain_for
from batch_export.sweeps.planned import installed

X = np.array([[1, 2], [3, 4]], np.float32)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index that there is here."""
    folder = tmp_path_factory.mktemp("wheels")
    package.numpy_wheel(folder)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(autouse=True)
def offline(wheels: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Environments of this module lie in one folder and are installed from another; the plug-in is installed."""
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(kept))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PATH", _without("uv", os.environ["PATH"]))
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    package.plugin(plugins)
    monkeypatch.syspath_prepend(str(plugins))
    monkeypatch.setenv("PYTHONPATH", str(plugins))
    importlib.invalidate_caches()
    registered.plugins.cache_clear()
    yield
    registered.plugins.cache_clear()
    sys.modules.pop("doubling_plugin", None)


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The requirement of the package `doubling`."""
    return str(package.doubling_wheel(tmp_path_factory.mktemp("doubling")))


@pytest.fixture
def provider(doubling: str) -> ProviderSpec:
    return provider_spec("twice", {"kind": "doubling", "env": [doubling]})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path, "Add(x, x)")


def saved(folder: Path, node: str) -> Path:
    path = folder / "model.onnx"
    text = f'<ir_version: 10, opset_import: ["": 20]> g (float[n, 2] x) => (float[n, 2] y) {{ y = {node} }}'
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def _without(program: str, path: str) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if not Path(entry, program).exists())


def acting(provider: ProviderSpec, **variables: str) -> ProviderSpec:
    return replace(provider, variables={f"DOUBLING_{name.upper()}": value for name, value in variables.items()})


# The whole way


def test_a_runtime_of_another_package_runs_in_an_environment_of_its_own(provider: ProviderSpec, model: Path) -> None:
    """And what it prints on the standard output, frames included, disturbs nothing."""
    session = open_session(model, provider)
    assert (session.input_names, session.output_names, session.placement) == (("x",), ("y",), {"CPU": 1})
    (y,) = session.run({"x": X})
    np.testing.assert_array_equal(np.asarray(y), 2 * X)
    (z,) = session.run({"x": np.zeros((0, 2), np.int64)})
    assert (np.asarray(z).dtype, np.asarray(z).shape) == (np.int64, (0, 2))
    session.close()
    assert "doubling" not in sys.modules


@pytest.mark.parametrize("shape", [(), (2, 1)])
def test_bits_and_texts_cross_intact(provider: ProviderSpec, model: Path, shape: tuple[int, ...]) -> None:
    session = open_session(model, provider)
    bits = np.full(shape, 0x7FC1, np.uint16)
    (y,) = session.run({"x": RawTensor("bfloat16", bits)})
    assert isinstance(y, RawTensor)
    np.testing.assert_array_equal(y.bits, bits)
    texts = np.full(shape, "naïve\n\x00", dtype=object)
    (z,) = session.run({"x": texts})
    np.testing.assert_array_equal(np.asarray(z), texts)
    session.close()


def test_latency_is_what_the_runtime_took_and_not_the_asking(provider: ProviderSpec, model: Path) -> None:
    session = open_session(model, provider)
    run = session.prepare({"x": X})
    asked: list[int] = []

    class Timed:
        def __call__(self) -> object:
            return run()

        def timed(self) -> tuple[int, int]:
            asked.append(1)
            return 2_000_000, 2_000_000

    facts = latency.measure(Timed(), MeasureSpec(budget_s=0.2, min_s=0.01, min_runs=5))
    assert (facts.median, facts.contended, facts.runs) == (2.0, False, len(asked))
    wall, cpu = run.timed()  # type: ignore[attr-defined]
    assert wall > 0
    assert cpu > 0
    session.close()


@pytest.mark.slow
@pytest.mark.ops
def test_a_sweep_says_which_runtime_is_alone(
    doubling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From configs of a user's folder to verdicts: right, wrong, gone at a file, beyond its memory, never there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_doubling.py").write_text(
        "import torch\n\n\nclass Double(torch.nn.Module):\n    def forward(self, x):\n        return x + x\n"
    )
    conf = tmp_path / "conf"
    (conf / "model").mkdir(parents=True)
    (conf / "provider").mkdir()
    (conf / "model/double.yaml").write_text(
        "_target_: my_doubling.Double\ninputs: {x: {dtype: float32, shape: [2, 3]}}\noutput_names: [y]\n"
    )
    text = f"kind: doubling\nenv: ['{doubling}']\nmeasure: false\n"
    for name, variables in {
        "twice": "{}",
        "thrice": "{DOUBLING_FACTOR: '3'}",
        "dying": "{DOUBLING_RUN: dies}",
        "eating": "{DOUBLING_RUN: eats}",
        "broken": "{DOUBLING_IMPORT: raises}",
    }.items():
        (conf / f"provider/{name}.yaml").write_text(f"{text}variables: {variables}\n")
    words = [
        "matrix.models=[double]",
        "matrix.providers=[cpu,twice,thrice,dying,eating,broken]",
        "measure.enabled=false",
    ]
    command = ["batch_export", f"--config-dir={conf}", *words, "runner.n_jobs=1", "runner.memory_gb=1.5"]
    assert main(command) == 1
    out = capsys.readouterr().out
    summary = json.loads(Path("outputs/latest/summary.json").read_text())
    records = [json.loads(line) for line in Path("outputs/latest/records.jsonl").read_text().splitlines()]
    found = {record["cell"]["provider"]: (record["verdict"], record["stage"]) for record in records}
    assert found == {
        "cpu": ("pass", ""),
        "twice": ("pass", ""),
        "thrice": ("fail", "mismatch"),
        "dying": ("fail", "crash"),
        "eating": ("fail", "memory"),
        "broken": ("skip", ""),
    }
    said = {record["cell"]["provider"]: record["message"] for record in records}
    assert "the process of Doubling ended by SIGSEGV while it ran the file" in said["dying"]
    assert "Doubling cannot be imported: ImportError: libdoubling.so: cannot open shared object" in said["broken"]
    (vote,) = summary["disagreements"]
    assert vote["alone"] == ["thrice"]
    assert vote["says"] == "thrice is alone: cpu, twice and eager agree; dying and eating refuse the file"
    assert f"disagreement: {vote['says']}" in out
    page = Path("outputs/latest/report.html").read_text()
    assert "thrice is alone: cpu, twice and eager agree" in page
    assert "thrice is alone" in Path("outputs/latest/summary.md").read_text()
    assert main(command) == 1  # what is known comes from the store
    again = json.loads(Path("outputs/latest/summary.json").read_text())
    assert (again["ran"], again["rerun_failures"]) == (0, 2), "what ended the process alone is tried again"
    assert again["disagreements"] == summary["disagreements"]


# What goes wrong


def test_a_runtime_that_refuses_a_file_is_a_load_error(provider: ProviderSpec, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"Doubling cannot load model\.onnx: operator Softmax is not implemented"):
        open_session(saved(tmp_path, "Softmax(x)"), provider)


def test_a_runtime_that_refuses_a_run_goes_on(provider: ProviderSpec, model: Path) -> None:
    session = open_session(model, acting(provider, run="raises"))
    for _ in range(2):
        with pytest.raises(WorkerRefusedError, match="no kernel for this shape"):
            session.run({"x": X})
    session.close()


def test_a_runtime_that_dies_at_a_file_says_how(provider: ProviderSpec, model: Path) -> None:
    session = open_session(model, acting(provider, run="dies"))
    sentence = r"the process of Doubling ended by SIGSEGV while it ran the file; its last words: doubling \(2, 2\)"
    with pytest.raises(WorkerEndedError, match=sentence):
        session.run({"x": X})
    session.close()


def test_a_runtime_that_dies_when_it_is_imported_is_not_there(provider: ProviderSpec, model: Path) -> None:
    sentence = "Doubling ended with exit code 3 while it was imported; its last words: cannot find libdoubling.so"
    with pytest.raises(ProviderUnavailableError, match=sentence):
        open_session(model, acting(provider, **{"import": "dies"}))


def test_a_runtime_that_hangs_when_it_is_imported_is_ended(
    provider: ProviderSpec, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_session, "START_LIMIT_S", 1.0)
    with pytest.raises(ProviderUnavailableError, match=r"Doubling did not answer in 1 s \(while it was imported\)"):
        open_session(model, acting(provider, **{"import": "hangs"}))


def test_options_that_a_runtime_rejects_are_told_in_its_own_words(provider: ProviderSpec) -> None:
    wrong = replace(provider, options={"sped": "9"})
    sentence = "provider twice: Doubling rejects its options: unknown property sped; known: speed"
    with pytest.raises(OptionsRejectedError, match=sentence) as caught:
        installed([wrong], start=True)
    assert caught.value.exit_code == 2


def test_an_execution_provider_that_is_not_there_skips(provider: ProviderSpec) -> None:
    there, gone = replace(provider, execution_provider="NPU"), replace(provider, execution_provider="TPU")
    assert installed([there], start=True).refused == {}
    refused = installed([gone], start=True).refused
    assert refused == {"twice": "provider twice: Doubling 1.0 has no TPU; there is CPU, NPU"}


def test_a_requirement_that_cannot_be_installed_is_a_reason_to_skip(provider: ProviderSpec) -> None:
    gone = replace(provider, env=("no-such-package-anywhere==9",))
    (reason,) = installed([gone], start=True).refused.values()
    assert reason.startswith(
        "provider twice: the environment (no-such-package-anywhere==9) cannot be made: pip says: "
        "Could not find a version that satisfies the requirement no-such-package-anywhere==9"
    )
    assert not shelf.folder_of(request(["no-such-package-anywhere==9"])).exists()
    assert installed([gone]).refused == {}, "without starting anything nothing is looked at"


def test_an_index_that_nobody_reaches_is_another_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(EnvironmentUnavailableError, match=r"pip does not reach its package index .*go online"):
        environment_for(["no-such-package-anywhere"])


def test_a_folder_that_cannot_be_written_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(
        EnvironmentUnavailableError, match=r"cannot be made in .*file: .*choose another folder with BATCH"
    ):
        environment_for(["numpy"])


@pytest.mark.parametrize(
    ("requirements", "sentence"),
    [
        (["openvino==2026.4.*", "OpenVINO<2026"], "asks for OpenVINO twice: 'openvino==2026.4.*' and 'OpenVINO<2026'"),
        (["--index-url=http://x"], "requirement '--index-url=http://x' does not name a package"),
        (["foo bar baz"], "requirement 'foo bar baz' does not name a package"),
        (["==1.0"], "requirement '==1.0' does not name a package; write it as in 'openvino==2026.4.*'"),
    ],
)
def test_requirements_that_cannot_be_meant_name_the_config(requirements: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match="provider/mine: ") as caught:
        provider_spec("mine", {"kind": "openvino", "env": requirements})
    assert sentence in str(caught.value)


def test_configs_that_cannot_be_meant(doubling: str) -> None:
    with pytest.raises(
        UsageError, match="the reference evaluator cannot run in an environment of its own; remove 'env'"
    ):
        provider_spec("mine", {"kind": "reference", "env": [doubling]})
    with pytest.raises(
        UsageError, match="variables are those of a runtime's own process, and ONNX Runtime runs in ours"
    ):
        provider_spec(
            "mine",
            {"kind": "onnxruntime", "execution_provider": "CPUExecutionProvider", "variables": {"A": "1"}},
        )
    with pytest.raises(UsageError, match="ONNX Runtime for Node runs in an environment of its own; name its packages"):
        provider_spec("mine", {"kind": "onnxruntime-node"})


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (None, "Node is not on the path. Next step: install Node 18.0 or later"),
        ("echo v12.22.9", "is v12.22.9, too old. Next step: install Node 18.0 or later"),
        ("echo hello", "does not print its version; it printed 'hello'"),
    ],
)
def test_a_node_that_is_missing_or_too_old(
    node: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if node is not None:
        (programs / "node").write_text(f"#!/bin/sh\n{node}\n")
        (programs / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    if node is not None:
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/bin{os.pathsep}/usr/bin")
    with pytest.raises(EnvironmentUnavailableError, match=sentence.replace(".", r"\.")):
        node_version()
    spec = provider_spec("node", {"kind": "onnxruntime-node", "env": ["onnxruntime-node@1.30.0"]})
    assert sentence in installed([spec], start=True).refused["node"]


@pytest.mark.skipif(shutil.which("npm") is None, reason="Node and npm are not on the path")
def test_a_runtime_of_node_runs_in_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_offline", "true")
    (tmp_path / "served.cjs").write_text(package.NODE_SERVED)
    row = Runtime("js", "Doubling for Node", "doubling", (), None, served=str(tmp_path / "served.cjs"), language="node")
    monkeypatch.setitem(registered.RUNTIMES, "js", row)
    provider = provider_spec("js", {"kind": "js", "env": [str(package.node_tarball(tmp_path))]})
    session = open_session(saved(tmp_path, "Add(x, x)"), provider)
    assert (session.input_names, session.output_names) == (("x",), ("y",)), "the file's own names"
    for x in (X, np.zeros((0, 2), np.float32), np.array(3, np.float32)):
        (y,) = session.run({"x": x})
        np.testing.assert_array_equal(np.asarray(y), 2 * x)
        assert np.asarray(y).shape == x.shape
    texts = np.array([["naïve", ""]], dtype=object)
    np.testing.assert_array_equal(np.asarray(session.run({"x": texts})[0]), texts)
    session.close()
    made = environment_for(provider.env, "node")
    assert made.content == ("doubling@1.0.0",)
    assert not list(made.folder.rglob("scripts-ran"))
    with pytest.raises(LoadError, match=r"Doubling for Node cannot load model\.onnx: no Softmax here"):
        open_session(saved(tmp_path, "Softmax(x)"), provider)
    with pytest.raises(OptionsRejectedError, match="Doubling for Node rejects its options: unknown property speed"):
        open_session(saved(tmp_path, "Add(x, x)"), replace(provider, options={"speed": "9"}))
    dying = open_session(saved(tmp_path, "Add(x, x)"), acting(provider, run="dies"))
    with pytest.raises(WorkerEndedError, match="Doubling for Node ended by SIGSEGV while it ran the file"):
        dying.run({"x": X})
    dying.close()


# What is kept


def test_an_environment_is_made_once_by_content(tmp_path: Path, doubling: str) -> None:
    said: list[str] = []
    first = environment_for([doubling], tell=said.append)
    assert environment_for([doubling], tell=said.append) == first
    assert len(said) <= 1
    changed = package.doubling_wheel(tmp_path, package.LIBRARY + "\n# another\n")
    assert shelf.folder_of(request([str(changed)])) != first.folder
    assert "numpy==" in first.resolved
    assert any(line.startswith("doubling==1.0 ") for line in first.content), "a digest beside a local package's version"


def test_two_processes_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(tmp_path / "kept"))
    script = (
        "import sys; from batch_export.environments.making import environment_for;"
        "print(environment_for(['numpy'], tell=lambda text: print('making')).name)"
    )
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0][-1] == said[1][-1]
    assert sum("making" in words for words in said) == 1


@pytest.mark.ops
def test_half_made_and_changed_ones_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(tmp_path / "kept"))
    made = environment_for(["numpy"])
    (made.folder / shelf.MARKER).unlink()
    (made.folder / "left-over").write_text("")
    assert shelf.found(request(["numpy"])) is None
    assert environment_for(["numpy"]).content == made.content
    assert not (made.folder / "left-over").exists()
    (next(made.folder.glob("lib/python*/site-packages")) / "stranger-2.0.dist-info").mkdir()
    again = shelf.opened(made.folder)
    assert again is not None
    assert "stranger==2.0" in shelf.damage(again)
    said: list[str] = []
    environment_for(["numpy"], tell=said.append)
    assert len(said) == 1
    made.program.unlink()
    assert "is gone" in shelf.damage(made)


def test_what_an_environment_holds_is_in_the_keys(provider: ProviderSpec, doubling: str) -> None:
    environment_for([doubling])
    tools = toolchain_for([], [], providers=[provider])

    def entries(spec: ProviderSpec) -> dict[str, str]:
        return dict(measure_action(ModelArtifact("f"), "r", spec, MeasureSpec(), tools).entries)

    mine = entries(provider)
    assert "doubling==1.0" in mine["environment"]
    assert "numpy==" in mine["environment"]
    assert mine["provider.module"] == tools.served["doubling"]
    assert "version.doubling" not in mine
    assert entries(acting(provider, factor="3")) != mine
    assert entries(replace(provider, name="other")) == mine


def test_what_a_runtime_says_of_itself_is_kept_with_its_environment(
    provider: ProviderSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed([provider], start=True).refused == {}
    monkeypatch.setattr(worker_session, "started", None)  # it is not started again
    assert installed([provider], start=True).refused == {}


# The verb


def command(*words: str) -> int:
    return main(["batch_export", "env", *words])


def test_the_verb_makes_lists_looks_and_removes(
    doubling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(tmp_path / "kept"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/provider").mkdir(parents=True)
    (tmp_path / "conf/provider/twice.yaml").write_text(f"kind: doubling\nenv: ['{doubling}']\n")
    (tmp_path / "conf/provider/gone.yaml").write_text("kind: doubling\nenv: [no-such-package-anywhere]\n")
    folders = "--config-dir=conf"
    assert command("create", "twice", folders) == 0
    assert capsys.readouterr().out.startswith("ok    twice: doubling-1.0-py3-none-any.whl-")
    assert command("create", "gone", folders) == 1
    assert (
        "fail  gone: the environment (no-such-package-anywhere) cannot be made: pip says: " in capsys.readouterr().out
    )
    assert command("list") == 0
    listed = capsys.readouterr().out
    assert "made by pip in" in listed
    assert "1 environment in" in listed
    assert command("doctor", folders) == 0
    looked = capsys.readouterr().out
    assert "ok    twice: Doubling 1.0 starts; it has CPU, NPU" in looked
    assert "-     gone: not made yet; `env create gone` makes it" in looked
    (name,) = [folder.name for folder, _ in shelf.all_environments()]
    (tmp_path / "kept" / f"{name}x").mkdir()
    assert command("remove", name[:8]) == 2
    assert (
        f"2 environments are called {name[:8]!r}: {name} ({doubling}); {name}x (half-made)" in capsys.readouterr().err
    )
    assert command("doctor", folders) == 0
    assert f"warn  {name}x is half-made" in capsys.readouterr().out
    assert command("remove", name) == 0
    assert command("remove", "other") == 2
    assert f"No environment is called 'other'; there are {name}x" in capsys.readouterr().err
    assert command("remove", "--all") == 0
    assert shelf.all_environments() == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lst"], "Unknown env command 'lst'; did you mean 'list'?"),
        ([], "there are list, create, remove, doctor"),
        (["remove"], "env remove needs a name, as `env list` shows them, or --all"),
        (["create", "cpu"], "provider cpu has no environment of its own: its config names no 'env'"),
        (["list", "--now"], "env list takes no --now"),
    ],
)
def test_words_that_the_verb_does_not_know(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*words) == 2
    assert sentence in capsys.readouterr().err
