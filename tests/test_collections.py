"""Collections of models: names, descriptions made by a child, shares of them, and plug-ins that bring further ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_package import entry_point

from batch_export.cli import list as listing
from batch_export.cli.main import main
from batch_export.collections import registered
from batch_export.collections.described import ROOT_VARIABLE, described
from batch_export.collections.kinds import Collection
from batch_export.collections.transformers.names import names, split
from batch_export.config import chosen
from batch_export.config.chosen import Share
from batch_export.config.groups import ConfigGroups
from batch_export.errors import RunError, UsageError
from batch_export.sources.places import conf_dir

MAPPING = """
from collections import OrderedDict
import torch_that_is_not_there
MODEL_MAPPING_NAMES = OrderedDict([("bert", "BertModel"), ("pair", ("PairModel", "PairBase"))])
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("bert", "BertLMHeadModel"), ("pair", "PairModel")])
MODEL_FOR_SOMETHING_ELSE_MAPPING_NAMES = OrderedDict([("bert", "BertForElse")])
"""

BUILDERS = """
import os, time
from torch import nn

def linear(width):
    return nn.Linear(width, 2)

def describe(name):
    with open(os.environ["ASKED"], "a") as asked:
        asked.write(name + "\\n")
    if name == "prints":
        print("a package that talks at import")
    if name == "raises":
        raise ValueError("no such thing\\nwith a second line")
    if name == "leaves":
        raise SystemExit(3)
    if name == "dies":
        os._exit(9)
    if name == "hangs":
        time.sleep(600)
    while name == "works":
        pass
    inputs = {"input": {"dtype": "float32", "shape": ["batch", 8]}}
    if name == "pair":
        inputs = {"text": {"dtype": "int64", "shape": ["seq", 8]}, "image": {"dtype": "float32", "shape": ["batch", 8]}}
        axes = {"seq": {"example": 2}, "batch": {"example": 2}}
        return {"_target_": "toy_world.linear", "width": 8, "inputs": inputs, "axes": axes}
    if name == "wrong":
        inputs = {"input": {"dtype": "float31", "shape": [8]}}
    return {"_target_": "toy_world.linear", "width": 8, "inputs": inputs, "axes": {"batch": {"example": 2}}}
"""

NAMES = ("good", "prints", "raises", "leaves", "dies", "hangs", "works", "wrong")
TOYS = Collection(
    "toys",
    "msgspec",
    ("msgspec",),
    lambda: {name: ("tame",) if name in ("good", "prints") else () for name in NAMES},
    "toy_world:describe",
    limit_s=1.0,
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module that describes toys; the file `asked` lists the names that it was asked for."""
    (tmp_path / "toy_world.py").write_text(BUILDERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "kept"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setitem(registered.COLLECTIONS, "toys", TOYS)
    registered.plugins.cache_clear()
    yield tmp_path
    registered.plugins.cache_clear()


def groups() -> ConfigGroups:
    return ConfigGroups([("main", f"folder://{conf_dir()}")])


def test_names_are_read_from_the_mapping_file_without_importing_it(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "auto"
    folder.mkdir(parents=True)
    (folder / "modeling_auto.py").write_text(MAPPING)
    assert names(tmp_path) == {
        "bert.BertLMHeadModel": ("causal-lm",),
        "bert.BertModel": ("base",),
        "pair.PairBase": ("base",),
        "pair.PairModel": ("base", "causal-lm"),
    }
    assert split("a.b.CModel") == ("a.b", "CModel")


@pytest.mark.zoo
def test_listing_the_names_of_transformers_imports_neither_it_nor_torch() -> None:
    words = (
        "import sys; from batch_export.collections.registered import collection;"
        "found = collection('transformers').names();"
        "assert len(found) > 1000 and 'base' in found['bert.BertModel'], len(found);"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", words], check=True)


def test_each_name_is_described_apart_and_what_has_no_description_has_a_reason(world: Path) -> None:
    told: list[str] = []
    found = described(TOYS, NAMES, tell=told.append)
    assert [name for name, answer in found.items() if not isinstance(answer, str)] == ["good", "prints", "wrong"]
    assert found["raises"] == "ValueError: no such thing"
    assert found["leaves"] == "SystemExit: 3"
    assert str(found["dies"]).startswith("describing it ended its process (status")
    assert found["hangs"] == "describing it took longer than 5 s"
    assert found["works"] == "describing it took more than 1 s of processor time" or "longer than" in str(
        found["works"]
    )
    assert told == ["toys: 8 of 8 models are built once to learn their inputs"]


def test_a_description_is_made_once_until_the_function_changes(world: Path) -> None:
    first = described(TOYS, ["good", "raises"])
    assert described(TOYS, ["raises", "good"]) == first
    assert (world / "asked").read_text().split() == ["good", "raises"]
    assert described(TOYS, ["dies"]) == described(TOYS, ["dies"])
    assert (world / "asked").read_text().split() == ["good", "raises", "dies", "dies"]
    (world / "toy_world.py").write_text(BUILDERS + "\n# another state\n")
    described(TOYS, ["good"])
    assert (world / "asked").read_text().split() == ["good", "raises", "dies", "dies", "good"]


def test_a_kept_description_has_inputs_and_axes_in_the_order_in_which_they_were_described(world: Path) -> None:
    for _ in range(2):  # described, and read again
        config = described(TOYS, ["pair"])["pair"]
        assert not isinstance(config, str)
        assert (list(config["inputs"]), list(config["axes"])) == (["text", "image"], ["seq", "batch"])
    assert (world / "asked").read_text() == "pair\n"


def test_a_child_that_cannot_start_is_one_sentence(world: Path) -> None:
    (world / "toy_world.py").write_text("import a_package_that_nobody_has")
    with pytest.raises(RunError, match=r"child that describes models of toys ended at 'good'\. Next step: import"):
        described(TOYS, ["good"])


def test_patterns_choose_from_collections_and_files_in_their_order(world: Path) -> None:
    found = chosen.models(["toys:tag:tame", "cnn", "toys:[gr]*"], groups(), Share())
    assert [model.name for model in found] == ["toys:good", "toys:prints", "cnn", "toys:raises"]
    assert found[0].arguments == {"width": 8}
    assert [model.skip for model in found] == ["", "", "", "it cannot be built: ValueError: no such thing"]


def test_a_description_that_is_no_configuration_is_a_model_with_the_reason(world: Path) -> None:
    (model,) = chosen.models(["toys:wrong"], groups(), Share())
    assert model.skip.startswith("its description is wrong: model 'toys:wrong': 'inputs.input.dtype' is 'float31'")


def test_a_sweep_runs_what_can_be_built_and_skips_the_rest_with_its_reason(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    words = ["matrix.models=['toys:good','toys:raises','toys:wrong']", "matrix.dynamic=[static]"]
    words += ["measure.enabled=false", "runner.n_jobs=1", f"store.path={world / 'store'}"]
    assert main(["batch-export", *words]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("toys:")}
    assert "✓" in rows["toys:good"]
    for name in ("toys:raises", "toys:wrong"):
        assert "skip" in rows[name], rows


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("toys:goood", r"None of the 8 models of toys is 'goood'; nearest: good\. Next step: `list models 'toys:\*'`"),
        ("toys:tag:tamed", r"None of the 8 models of toys is 'tag:tamed'; nearest: tag:tame\. "),
        ("toys:Print?*", r"is 'Print\?\*'; nearest: prints\. "),
        ("toys:raiz*", r"is 'raiz\*'; nearest: raises\. "),
        ("toys:zzz*", r"is 'zzz\*'\. Next step"),
        ("toys:[xyz]", r"is '\[xyz\]'\. Next step"),
        ("tosy:good", r"Unknown collection 'tosy:' \(nearest: toys:.* in 'tosy:good'"),
    ],
)
def test_a_pattern_that_chooses_nothing_names_the_nearest(pattern: str, sentence: str, world: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        chosen.models([pattern], groups(), Share())


def test_the_names_of_a_collection_are_listed_by_pattern(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch-export", "list", "models", "toys:[gr]*", "cnn"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:2] == ["toys:good    toys:tag:tame", "toys:raises  -"]
    assert told.out.splitlines()[2].split()[0] == "cnn"
    assert main(["batch-export", "list", "models", "toys:zzz*", "toys:good", "tosy:*"]) == 2
    told = capsys.readouterr()
    assert told.out == "toys:good  toys:tag:tame\n"
    assert [line[:40] for line in told.err.splitlines()] == [
        "error: None of the 8 models of toys is '",
        "error: Unknown collection 'tosy:' (neare",
    ]
    assert not (world / "asked").exists(), "nothing is described"
    assert main(["batch-export", "list", "cells", "toys:good"]) == 2
    assert "'toys:good' is no override (key=value); patterns go with models" in capsys.readouterr().err
    assert main(["batch-export", "plan", "toys:go*"]) == 2
    assert "matrix.models=['toys:go*']" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [24, 80])
def test_a_row_that_is_wider_than_the_terminal_goes_on_below_its_name(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    listing._print([("one", "tag:a,tag:b", "models.of.one"), ("two", "-", "m.two")])
    assert capsys.readouterr().out.splitlines() == (
        ["one  tag:a,tag:b  models.of.one", "two  -            m.two"]
        if columns == 80
        else ["one", "    tag:a,tag:b", "    models.of.one", "two  -            m.two"]
    )


def test_a_collection_without_its_library_says_so(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Collection("toys", "a_package_that_nobody_has", (), dict, "toy_world:describe")
    monkeypatch.setitem(registered.COLLECTIONS, "toys", absent)
    with pytest.raises(UsageError, match="'toys' needs the package a_package_that_nobody_has, which is not installed"):
        registered.collection("toys")


def test_shards_take_all_of_a_sample_and_none_twice() -> None:
    everything = [f"model{index}" for index in range(50)]
    sample = Share(sample=20, seed=3).of(everything)
    assert len(sample) == 20
    assert sample == [name for name in everything if name in sample]
    assert sample == Share(sample=20, seed=3).of(everything)
    assert sample != Share(sample=20, seed=4).of(everything)
    parts = [Share(20, 3, f"{index}/8").of(everything) for index in range(1, 9)]
    assert sorted(name for part in parts for name in part) == sorted(sample)
    assert Share(sample=60).of(everything) == everything


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (Share(sample=-1), "matrix.sample is a number of models, or 0 for all; got -1"),
        (Share(shard="9/8"), "runner.shard must be such as 2/8, the second of eight; got '9/8'"),
        (Share(shard="half"), "got 'half'"),
        (Share(shard="4/4"), "runner.shard=4/4 has no model: 3 are chosen. Next step: fewer shards"),
    ],
)
def test_a_share_that_cannot_be_meant_is_one_sentence(share: Share, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        share.of(["a", "b", "c"])


PLUGIN = """from batch_export.collections.kinds import Collection
MINE = Collection('mine', 'msgspec', (), dict, 'mine:tell')
"""


def test_a_package_brings_a_collection_and_is_not_imported_until_a_pattern_names_it(world: Path) -> None:
    entry_point(world, "minerals", "mine", "mine_world:MINE", registered.GROUP)
    (world / "mine_world.py").write_text(PLUGIN)
    assert "mine" in registered.collections()
    assert "mine_world" not in sys.modules
    assert registered.collection("mine").describe == "mine:tell"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import no_such_library", "'mine' of the package minerals cannot be imported: ModuleNotFoundError"),
        ("MINE = 5", r"entry point 'mine' \(batch_export.models\) of the package minerals is a int; it must be"),
        (PLUGIN.replace("'mine', 'm", "'ours', 'm"), "is a Collection named 'ours'; it must be .* named 'mine'"),
    ],
)
def test_a_plug_in_that_is_none_is_told_with_its_package(
    source: str, sentence: str, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mine_world", raising=False)
    entry_point(world, "minerals", "mine", "mine_world:MINE", registered.GROUP)
    (world / "mine_world.py").write_text(source)
    with pytest.raises(UsageError, match=sentence):
        registered.collection("mine")
    sys.modules.pop("mine_world", None)


def test_a_plug_in_may_not_take_a_shipped_name(world: Path) -> None:
    entry_point(world, "minerals", "toys", "mine_world:MINE", registered.GROUP)
    with pytest.raises(UsageError, match="The collection 'toys' is brought by minerals and by batch_export"):
        registered.collection("toys")
