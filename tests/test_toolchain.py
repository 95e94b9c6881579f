"""What keys are made of: local sources by content without importing them, versions, our own rooms, the host."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from batch_export.errors import UsageError
from batch_export.runner.recorded_names import Names
from batch_export.sources import closure as sources
from batch_export.sources import named_files, recorded, toolchain
from batch_export.sources.file_digests import file_digest
from batch_export.sources.import_names import ImportNames
from batch_export.sources.places import models_dir
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with a package whose `net` imports its neighbours in every way there is."""
    texts = {
        "mine/__init__.py": "",
        "mine/net.py": """
            import os, numpy, layers.conv
            from . import blocks
            from .deep.inner import thing as other
            from mine import table
            def build():
                from late import later
                raise SystemExit("imported or called")
            raise RuntimeError("parsed, never imported")
            """,
        "mine/blocks.py": "from layers import *\n",
        "mine/table.py": "import mine.net",
        "mine/deep/__init__.py": "",
        "mine/deep/inner.py": "thing = 1",
        "mine/unrelated.py": "",
        "layers/__init__.py": "",
        "layers/conv.py": "",
        "late/__init__.py": "",
        "late/later.py": "this is no Python (",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.removeprefix(" " * 12) for line in text.splitlines()))
    return tmp_path


def test_the_closure_follows_every_kind_of_import_to_local_files_only(project: Path) -> None:
    assert set(sources.LocalSources((project,)).closure("mine.net")) == {
        "mine",
        "mine.net",
        "mine.blocks",
        "mine.table",
        "mine.deep",
        "mine.deep.inner",
        "layers",
        "layers.conv",
        "late",
        "late.later",
    }


def test_nothing_is_imported(project: Path) -> None:
    before = set(sys.modules)
    sources.source_digest("mine.net.build", (project,))
    assert {name for name in sys.modules if name.startswith(("mine", "layers", "late"))} <= before


@pytest.mark.parametrize(
    ("name", "changes"),
    [("mine/net.py", True), ("mine/deep/inner.py", True), ("late/later.py", True), ("mine/unrelated.py", False)],
)
def test_the_digest_changes_with_files_of_the_closure_only(project: Path, name: str, changes: bool) -> None:
    before = sources.source_digest("mine.net.build", (project,))
    (project / name).write_text("a = 'another text of another size'")
    assert (sources.source_digest("mine.net.build", (project,)) != before) is changes


def test_the_digest_does_not_depend_on_where_the_folder_lies(project: Path, tmp_path: Path) -> None:
    before = sources.source_digest("mine.net.build", (project,))
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("mine", "layers", "late"):
        (project / name).rename(other / name)
    assert sources.source_digest("mine.net.build", (other,)) == before


def test_the_zoo_stands_under_its_own_name_wherever_it_lies() -> None:
    closure = sources.LocalSources(()).closure("batch_export.zoo.torch_basic")
    assert closure["batch_export.zoo.torch_basic"] == models_dir() / "torch_basic.py"
    assert sources.source_digest("models.torch_basic.mlp_nested", ()) == sources.source_digest(
        "batch_export.zoo.torch_basic.mlp_nested", (ROOT,)
    )


def test_a_name_without_a_module_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="is not the dotted name of a function"):
        sources.source_digest("build", ())


def test_installed_packages_are_not_local_and_local_files_have_relative_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    roots = sources.local_roots()
    assert roots[0] == project
    assert not any("site-packages" in str(root) for root in roots)
    assert sources.find_module("msgspec", roots) is None
    assert sources.relative_name(project / "mine" / "net.py", roots) == "mine/net.py"
    assert sources.relative_name(Path(os.__file__), roots) is None
    assert sources.relative_name(sources.PACKAGE / "plan" / "walk.py", (*roots, ROOT)) is None
    name = sources.relative_name(models_dir() / "torch_basic.py", roots)
    assert name == "batch_export.zoo/torch_basic.py"
    assert recorded.current_digest(name, roots, project) == file_digest(models_dir() / "torch_basic.py")
    assert recorded.current_digest("mine/gone.py", roots, project) == recorded.ABSENT


def test_a_project_may_lie_in_its_own_virtual_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "prefix", str(project))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    roots = (project,)
    assert sources.relative_name(project / "mine" / "net.py", roots) == "mine/net.py"
    assert sources.relative_name(project / "lib" / "weights.bin", roots) == "lib/weights.bin"
    for own in ("bin/python", "lib/python3.11/os.py", "lib64/python3.11/x.so", "pyvenv.cfg"):
        assert sources.relative_name(project / own, roots) is None
    monkeypatch.setattr(sys, "prefix", str(project / ".venv"))
    asked = project / ".venv" / "share" / "data"
    assert sources.relative_name(asked, roots) is None
    names = Names(roots, ())
    assert names.of_asked(str(asked)) is None
    assert names.of_elsewhere(str(asked)) == str(asked)  # as anywhere outside the project
    assert names.of_elsewhere(str(project / "data")) is None


def test_our_own_rooms_are_followed_to_what_they_import() -> None:
    run = sources.LocalSources(()).closure("batch_export.stages.run")
    assert {"batch_export.stages.run", "batch_export.numbers.compare", "batch_export.runtime.session"} <= set(run)
    assert not any(name.startswith(("batch_export.exporter", "batch_export.report")) for name in run)
    reference = sources.LocalSources(()).closure("batch_export.stages.reference")
    assert "batch_export.stages.model" in reference
    assert len(set(toolchain.own_sources().values())) >= 6


@pytest.mark.parametrize("room", ["reference", "oracle", "run"])
def test_eager_and_the_comparison_do_not_hang_on_the_exporter(room: str) -> None:
    closure = sources.LocalSources(()).closure(f"batch_export.stages.{room}")
    assert not [name for name in closure if name.startswith("batch_export.exporter")]


def test_versions_of_packages_by_import_name_or_distribution_name() -> None:
    assert toolchain.distribution_version("numpy") == importlib.metadata.version("numpy")
    assert toolchain.distribution_version("onnx_ir") == importlib.metadata.version("onnx-ir")
    assert toolchain.distribution_version("yaml").startswith("PyYAML ")
    assert toolchain.distribution_version("no_such_package_at_all") == "absent"


def test_the_toolchain_names_every_target_and_library_and_parses_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[object] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda source, *args, **kwargs: (parsed.append(source), parse(source))[1])
    names = sorted(path.stem for path in models_dir().glob("*.py") if path.stem != "__init__")
    models = [
        ModelSpec(f"m{index}", f"models.{name}.build", {}, (), requires=("numpy",))
        for index, name in enumerate(names * 30)
    ]
    exporters = [ExporterSpec("core", CORE_EXPORTER_TARGET), ExporterSpec("mine", "batch_export.plan.walk.walk")]
    tools = toolchain.toolchain_for(models, exporters)
    assert len(parsed) == len(set(parsed)) > len(names)
    assert set(tools.targets) == {model.target for model in models} | {"batch_export.plan.walk.walk"}
    assert tools.versions["numpy"] == importlib.metadata.version("numpy")
    assert int(tools.host["cores"]) >= 1
    assert tools.host["cpu"]


def test_neither_the_plan_nor_the_toolchain_imports_torch() -> None:
    code = (
        "import sys; from batch_export.plan import walk as plan; "
        "from batch_export.sources import toolchain; toolchain.toolchain_for([], []);"
        "sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_packages_of_another_environment_are_no_local_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "other" / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "huge.py").write_text("")
    monkeypatch.syspath_prepend(str(packages))
    assert packages not in sources.local_roots()
    assert sources.is_installed(packages / "huge.py")


def test_what_files_import_is_remembered_by_their_content(project: Path, tmp_path: Path) -> None:
    memo = tmp_path / "imports.json"
    names = ImportNames(memo)
    digest = sources.source_digest("mine.net.build", (project,), names)
    memo.write_bytes(msgspec.json.encode(names.news()))

    again = ImportNames(memo)
    assert sources.source_digest("mine.net.build", (project,), again) == digest
    assert again.news() == {}  # nothing had to be parsed

    (project / "mine" / "deep" / "inner.py").write_text("from mine import unrelated")
    closure = sources.LocalSources((project,), ImportNames(memo)).closure("mine.net")
    assert "mine.unrelated" in closure


def test_one_look_reads_a_module_once_however_many_stand_on_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = sources.LocalSources((project,))
    digest, closure = looked.digest("mine.net"), looked.closure("mine.net")
    assert digest == sources.source_digest("mine.net.build", (project,))
    for name in ("find_module", "file_digest"):
        monkeypatch.setattr(sources, name, None)
    assert looked.digest("mine.net") == digest
    assert looked.closure("mine.net") == closure


def test_a_file_is_parsed_once_even_if_it_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.py"
    path.write_text("thing = 1")
    names = ImportNames()
    assert names.of(path, "net") == ()
    monkeypatch.setattr(ast, "parse", None)
    assert names.of(path, "net") == ()


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1}', b"\xff\x00"])
def test_a_damaged_memo_costs_time_only(project: Path, tmp_path: Path, text: bytes) -> None:
    memo = tmp_path / "imports.json"
    memo.write_bytes(text)
    closure = sources.LocalSources((project,), ImportNames(memo)).closure("mine.net")
    assert closure == sources.LocalSources((project,)).closure("mine.net")


@pytest.mark.parametrize(
    "text",
    [
        "if True:\n import far\nelse:\n pass",
        "try:\n pass\nexcept ValueError:\n import far\nfinally:\n pass",
        "try:\n pass\nfinally:\n import far",
        "for a in b:\n pass\nelse:\n import far",
        "with a:\n import far",
        "match a:\n case 1:\n  import far",
        "class A:\n def f(self):\n  async def g():\n   import far",
        "a = 1; import far",
        "while a: import far",
    ],
)
def test_an_import_is_found_wherever_a_statement_may_stand(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(text)
    assert ImportNames().of(path, "net") == ("far",)


def test_files_and_passes_that_arguments_name_are_digested(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "calibration.bin"
    data.write_bytes(b"one")
    arguments = {"calibration": str(data), "nested": {"list": ["no file", str(data)]}, "passes": ["mine.net.Pass", "x"]}

    def named() -> dict[str, str]:
        return named_files.named_digests(arguments, (project,))

    before = named()
    assert set(before) == {str(data), "mine.net.Pass"}
    assert before == named()
    data.write_bytes(b"two")
    assert named()[str(data)] != before[str(data)]
    with (project / "mine" / "net.py").open("a") as stream:
        stream.write("\nEDITED = True\n")
    assert named()["mine.net.Pass"] != before["mine.net.Pass"]
    assert named_files.named_digests({"long": "x" * 5000, "null": "a\0b", "passes": None}, (project,)) == {}


def test_the_toolchain_holds_what_models_and_exporters_name(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("weights.pt", "table.csv")]
    for path in files:
        path.write_bytes(b"x")
    model = ModelSpec("m", "models.vision.build", {"checkpoint": str(files[0])}, ())
    exporter = ExporterSpec("mine", "batch_export.plan.walk.walk", {"table": str(files[1])})
    assert set(toolchain.toolchain_for([model], [exporter]).named) == {str(path) for path in files}
