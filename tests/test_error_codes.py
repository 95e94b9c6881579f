"""Codes of errors: each example fails with its own code, and docs/errors.md says what `explain` says."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import batch_export
import batch_export.errors
from batch_export.error_codes import EXPLANATIONS, code_of, explanation_of, words
from batch_export.error_codes.__main__ import page
from batch_export.error_codes.explanation import Explanation, Kind
from batch_export.judge.mismatch import KINDS

PROJECT = Path(__file__).parents[1]
PYTHON = [one for one in EXPLANATIONS if one.kind is Kind.PYTHON]
COMMANDS = [one for one in EXPLANATIONS if one.kind is Kind.COMMAND]
_OF_PYTHON = (Kind.PYTHON, Kind.MODEL, Kind.EXPORTER)
SWEPT = [one for one in EXPLANATIONS if one.kind in (Kind.MODEL, Kind.EXPORTER)]
MODEL = """
_target_: {target}
inputs: {{input: {{dtype: float32, shape: [batch, 4]}}}}
axes: {{batch: {{example: 2, check: [5]}}}}
{more}
"""
RIGHT = "import torch\n\n\ndef build():\n    return torch.nn.Tanh()\n"


def name(one: Explanation) -> str:
    return one.code.lower()


@pytest.mark.parametrize("one", PYTHON, ids=name)
def test_an_example_in_python_raises_its_class(one: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, object] = {"__name__": "example"}
    monkeypatch.setitem(sys.modules, "example", type(sys)("example"))
    program = compile(one.example, one.code, "exec")
    if "found" in program.co_names:  # it tells the class of a failure, which is no exception
        exec(program, found)
        assert found["found"] == one.name
        return
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is asked
        exec(program, found)
    assert type(raised.value).__name__ == one.name, raised.value
    assert code_of(type(raised.value)) == one.code


@pytest.mark.parametrize("one", [one for one in EXPLANATIONS if one.kind in _OF_PYTHON], ids=name)
def test_an_example_imports_what_it_uses(one: Explanation) -> None:
    """In this process every module of the package is imported already, so that a missing import goes unnoticed."""
    tree = ast.parse(one.example)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "batch_export"
    }
    modules = {name.partition(".")[2].partition(".")[0] for name in imported if name.startswith("batch_export.")}
    assert used <= {*batch_export.__all__, *modules}


@pytest.mark.parametrize("one", COMMANDS, ids=name)
def test_a_command_ends_with_its_code(one: Explanation, tmp_path: Path) -> None:
    _, *words = shlex.split(one.example.strip())
    done = subprocess.run(
        [sys.executable, "-m", "batch_export", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode in (2, 3)
    assert done.stderr.rstrip().endswith(f"[{one.code}]")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """One sweep with every example that is a model or an exporter: the classes that its cell's record names."""
    folder = tmp_path_factory.mktemp("codes")
    for group in ("model", "exporter"):
        (folder / "conf" / group).mkdir(parents=True)
    (folder / "right_model.py").write_text(RIGHT)
    pairs = []
    for one in SWEPT:
        module = f"example_{name(one)}"
        (folder / f"{module}.py").write_text(one.example)
        is_model = one.kind is Kind.MODEL
        target = f"{module}.build" if is_model else "right_model.build"
        model = MODEL.format(target=target, more=one.config)
        (folder / f"conf/model/{name(one)}.yaml").write_text(model)
        if not is_model:
            (folder / f"conf/exporter/{name(one)}.yaml").write_text(f"_target_: {module}.write\n")
        pairs.append((name(one), "core" if is_model else name(one)))
    exporters = sorted({exporter for _, exporter in pairs})
    models = [model for model, _ in pairs]
    unwanted = [
        {"model": model, "exporter": other, "reason": "another example"}
        for model, mine in pairs
        for other in exporters
        if other != mine
    ]
    overrides = [
        f"matrix.models={json.dumps(models)}",
        f"matrix.exporters={json.dumps(exporters)}",
        "matrix.dynamic=[full]",
        "matrix.opsets=[20]",
        "measure.enabled=false",
        "runner.n_jobs=2",
    ]
    (folder / "conf/sweep").mkdir()
    (folder / "conf/sweep/codes.yaml").write_text(
        "# @package _global_\nmatrix:\n  exclude:\n" + "".join(f"    - {json.dumps(one)}\n" for one in unwanted)
    )
    done = subprocess.run(
        [sys.executable, "-m", "batch_export", "--config-dir", "conf", "+sweep=codes", *overrides],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    lines = (folder / "outputs/latest/records.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["verdict"] != "skip"]
    return {
        record["cell"]["model"]: [record["error_class"], *(one["error_class"] for one in record["findings"])]
        for record in records
    }


@pytest.mark.parametrize("one", SWEPT, ids=name)
def test_a_cell_ends_with_its_class(one: Explanation, classes: dict[str, list[str]]) -> None:
    assert one.code in map(code_of, classes[name(one)]), classes[name(one)]


def test_every_error_class_has_a_code() -> None:
    for class_name, found in inspect.getmembers(batch_export.errors, inspect.isclass):
        if issubclass(found, Exception) and class_name not in ("BatchExportError", "ArtifactError"):
            assert explanation_of(class_name) is not None, class_name


def test_every_class_that_a_verdict_or_a_finding_names_has_a_code() -> None:
    names = (
        "judge/problems.py",
        "judge/declared_names.py",
        "judge/needless_draws.py",
        "plan/walk.py",
        "stages/check.py",
    )
    sources = [PROJECT / "batch_export" / name for name in names]
    named = {
        found
        for path in sources
        for found in re.findall(
            r"(?:Problem|Failure)\(\s*\"\w+\",\s*\"(\w+)\"|_finding\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")
        )
        for found in found
        if found
    }
    assert {"StaticAxis", "TiedAxes", "OpsetMismatch", "NothingFinite", "SizeRefused"} <= named | set(KINDS)
    assert [one for one in sorted(named | set(KINDS)) if explanation_of(one) is None] == []


def test_codes_are_unique_and_rising() -> None:
    codes = [one.code for one in EXPLANATIONS]
    assert codes == sorted(set(codes))
    assert len(words()) == sum(2 + len(one.also) for one in EXPLANATIONS)


@pytest.mark.parametrize(
    ("word", "code"),
    [("BE201", "BE201"), ("be201", "BE201"), ("CaptureError", "BE201"), ("SIGSEGV", "BE505"), ("SIG", None)],
)
def test_words_that_are_explained(word: str, code: str | None) -> None:
    found = explanation_of(word)
    assert (found.code if found else None) == code


def test_the_page_is_the_tables() -> None:
    assert (PROJECT / "docs/errors.md").read_text(encoding="utf-8") == page()
