"""The verb `export`, the Python API and the CMake example, with real exports of a tiny model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import batch_export
from batch_export.cli import main as cli
from batch_export.cli.exported_files import listed, tell_dropped
from batch_export.digest import digest_file

ROOT = Path(__file__).parents[1]
WORDS = ("matrix.opsets=[18,20]", "matrix.dynamic=[full]")  # the tests share a store: what one exported is cached


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workshop")


def command(*arguments: str) -> int:
    return cli.main(["batch_export", *arguments])


def test_export_writes_files_a_manifest_and_a_depfile_then_nothing(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop)
    words = ("export", "mlp_nested", "--dest", "out dir", "--depfile", "models.d", "--quiet", *WORDS)
    assert command(*words) == 0
    assert "2 files, 2 written" in capsys.readouterr().out
    manifest = json.loads((workshop / "out dir/manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == [
        "mlp_nested/full/opset18.onnx",
        "mlp_nested/full/opset20.onnx",
    ]
    for entry in manifest["files"]:
        assert digest_file(workshop / "out dir" / entry["path"]) == entry["sha256"]
        for name, digest in entry["external"].items():
            assert digest_file(workshop / "out dir" / name) == digest
    rule = (workshop / "models.d").read_text()
    assert rule.startswith(f"{workshop}/out\\ dir/manifest.json: ")
    assert "models/torch_basic.py" in rule
    assert "conf/model/mlp_nested.yaml" in rule
    times = {path: path.stat().st_mtime_ns for path in (workshop / "out dir").rglob("*.onnx")}
    assert command(*words) == 0
    assert "2 files, up to date" in capsys.readouterr().out
    assert times == {path: path.stat().st_mtime_ns for path in times}
    (workshop / "out dir/mlp_nested/full/opset18.onnx").write_bytes(b"spoilt")
    assert command(*words) == 0
    assert "2 files, 1 written" in capsys.readouterr().out


def test_export_puts_data_inside_and_names_what_the_manifest_dropped(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop)
    dest = workshop / "one"
    words = ("export", "bert_tiny", "--dest", "one", "--quiet", "matrix.opsets=[18]")
    assert command(*words) == 0
    beside = set(json.loads((dest / "manifest.json").read_text())["files"][0]["external"])
    assert beside
    capsys.readouterr()
    assert command(*words, "--single-file", "--limit", "1K") == 0
    assert "its data stay beside it, for they take" in capsys.readouterr().out
    assert command(*words, "--single-file") == 0
    said = capsys.readouterr().out
    assert "1 file, 1 written" in said
    for name in beside:
        assert f"left over  {name}: no longer in the manifest" in said
        (dest / name).unlink()  # the file needs nothing beside it
    (entry,) = json.loads((dest / "manifest.json").read_text())["files"]
    assert entry["external"] == {}
    assert digest_file(dest / entry["path"]) == entry["sha256"]
    onnx.checker.check_model(onnx.load(dest / entry["path"]))
    assert command(*words, "--single-file") == 0
    assert "1 file, up to date" in capsys.readouterr().out
    assert command("export", "mlp_nested", "--dest", "one", "--quiet", "--prune", *WORDS) == 0
    assert f"removed  {entry['path']}: no longer in the manifest" in capsys.readouterr().out
    assert not (dest / entry["path"]).exists()


def _flip_a_bit(path: Path) -> None:
    """As a disk does: time and size stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("flags", [(), pytest.param(("--single-file",), marks=pytest.mark.ops)])
def test_a_damaged_file_of_the_store_is_made_again_and_never_handed_out(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(workshop)
    words = ("export", "bert_tiny", "--quiet", "matrix.opsets=[18]")
    assert command(*words, "--dest", "beside") == 0
    (beside,) = json.loads((workshop / "beside/manifest.json").read_text())["files"]
    name = max(beside["external"], key=lambda name: (workshop / "beside" / name).stat().st_size)
    assert command(*words, *flags, "--dest", "sound") == 0
    sound = (workshop / "sound/manifest.json").read_text()
    for stored, digest in ((f"{beside['sha256']}.onnx", beside["sha256"]), (Path(name).name, beside["external"][name])):
        (damaged,) = (workshop / "outputs/store/models").glob(f"*/{stored}")
        _flip_a_bit(damaged)
        shutil.rmtree("copy", ignore_errors=True)
        capsys.readouterr()
        assert command(*words, *flags, "--dest", "copy") == 0
        assert f"the stored file {damaged} is damaged" in capsys.readouterr().err
        assert (workshop / "copy/manifest.json").read_text() == sound
        for entry in json.loads(sound)["files"]:
            for path, expected in {entry["path"]: entry["sha256"], **entry["external"]}.items():
                assert digest_file(workshop / "copy" / path) == expected
        assert digest_file(damaged) == digest


def test_a_manifest_that_names_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("mine")
    (tmp_path / "dest").mkdir()
    manifest = tmp_path / "dest" / "manifest.json"
    manifest.write_text(json.dumps({"files": [{"path": "../precious", "external": {}}]}))
    assert listed(manifest) == {"../precious"}
    tell_dropped(tmp_path / "dest", listed(manifest), True)
    assert outside.read_text() == "mine"


def test_export_says_what_is_missing(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop)
    assert command("export", "--dest", "x") == 2
    assert "export: no model is named. Next step: `export bert_tiny --dest build/models`" in capsys.readouterr().err
    assert command("export", "mlp_nested") == 2
    assert "required: --dest" in capsys.readouterr().err
    assert command("export", "mlp_nested", "--dest", "x", "matrix.exporters=[core,torch]") == 2
    assert "export: choose one exporter" in capsys.readouterr().err


def test_a_sweep_from_python_is_the_command_lines(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    run = batch_export.sweep(["matrix.models=[mlp_nested]", *WORDS, "measure.enabled=false"])
    assert (run.exit_code, set(run.verdicts.values()), len(run.records)) == (0, {"pass"}, 2)
    assert run.summary.planned == 2
    assert (run.folder / "report.html").is_file()
    assert (workshop / "outputs" / ".gitignore").read_text().endswith("\n*\n")
    shown = run._repr_html_()
    assert "<th>opset 18</th>" in shown
    assert "mlp_nested" in shown
    again = batch_export.open_run("latest", workshop / "outputs")
    assert repr(again) == f"Run({str(again.folder)!r}, 2 cells: 2 pass)"
    assert again.verdicts == run.verdicts
    assert again.compare(run).story() == "nothing changed"
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = run.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["verdict"]) == ["pass", "pass"]


def test_the_api_imports_no_torch() -> None:
    code = "import sys, batch_export; batch_export.sweep; batch_export.Run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="cmake and ninja are not on the path")
def test_the_cmake_example_builds_and_is_up_to_date(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def cmake(*words: str) -> str:
        done = subprocess.run(
            ["cmake", *words], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    call = f"-DBATCH_EXPORT={sys.executable};-m;batch_export"
    cmake("-S", str(ROOT / "examples" / "cmake"), "-B", "build", "-G", "Ninja", call)
    cmake("--build", "build")
    manifest = json.loads((tmp_path / "build/models/manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == ["mlp_nested/full/opset20.onnx"]
    assert "no work to do" in cmake("--build", "build")
