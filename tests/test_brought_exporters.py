"""config/brought_exporters.py: an installed package brings an exporter, and no file says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_package import entry_point

from batch_export.cli import main as cli
from batch_export.config import brought_exporters
from batch_export.errors import UsageError

EXPORTER = """
import batch_export

def export(module, args, kwargs, *, path, opset_version, dynamic_shapes, input_names, output_names, optimize=True):
    options = {"input_names": input_names, "output_names": output_names, "optimize": optimize}
    options |= {"opset_version": opset_version, "dynamic_shapes": dynamic_shapes}
    program = batch_export.export(module, args, kwargs=kwargs, **options)
    program.save(path)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, one of which brings `hum`."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "hum_exporter.py").write_text(EXPORTER)
    entry_point(folder, "humming", "hum", "hum_exporter:export", brought_exporters.GROUP)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    brought_exporters._points.cache_clear()
    yield folder
    brought_exporters._points.cache_clear()


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["batch_export", "list", *words]) == 0
    return capsys.readouterr().out


def test_it_is_listed_and_not_imported(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "hum_exporter.export" in planned(capsys, "exporters")
    cells = ("cells", "matrix.models=[cnn]", "matrix.dynamic=[static]")
    assert planned(capsys, *cells, "matrix.exporters=[hum]") == "cnn/static/opset20/cpu/hum\n"
    assert "cnn/static/opset20/cpu/hum" in planned(capsys, *cells, "matrix.exporters=['h*','core']")
    assert "hum_exporter" not in sys.modules


def test_a_config_of_its_name_takes_it_up(packages: Path) -> None:
    from batch_export.config.groups import ConfigGroups
    from batch_export.sources.places import conf_dir

    own = packages.parent / "own"
    (own / "exporter").mkdir(parents=True)
    (own / "exporter" / "plain_hum.yaml").write_text("defaults: [hum]\noptimize: false\n")
    groups = ConfigGroups([("main", f"file://{conf_dir()}"), ("command-line", f"file://{own}")])
    assert groups.load("exporter", "plain_hum") == {"_target_": "hum_exporter.export", "optimize": False}
    (own / "exporter" / "hum.yaml").write_text("_target_: mine.export\n")
    groups = ConfigGroups([("main", f"file://{conf_dir()}"), ("command-line", f"file://{own}")])
    assert groups.load("exporter", "hum") == {"_target_": "mine.export"}


def test_two_packages_or_no_callable_are_one_sentence(packages: Path) -> None:
    entry_point(packages, "thrumming", "hum", "thrum:export", brought_exporters.GROUP)
    brought_exporters._points.cache_clear()
    with pytest.raises(UsageError, match="'hum' is brought by humming and by thrumming"):
        brought_exporters.config("hum")
    entry_point(packages, "bare", "bare", "bare_module", brought_exporters.GROUP)
    brought_exporters._points.cache_clear()
    with pytest.raises(UsageError, match=r"entry point 'bare' .* of the package bare .* must name a callable"):
        brought_exporters.config("bare")


def test_a_cell_of_it_runs(packages: Path) -> None:
    command = [sys.executable, "-m", "batch_export", "matrix.models=[mlp_nested]", "matrix.dynamic=[static]"]
    done = subprocess.run(
        [*command, "matrix.exporters=[hum]", "measure.enabled=false", "runner.n_jobs=1"],
        env={**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in Path("outputs/latest/records.jsonl").read_text().splitlines()]
    assert [(record["cell"]["exporter"], record["verdict"]) for record in records] == [("hum", "pass")]
