"""batch_export.config.run and its neighbours: what the configuration becomes, and a sentence for everything wrong in
it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from batch_export.config.groups import ConfigGroups
from batch_export.config.run import exporter_spec, provider_spec, run_spec
from batch_export.config.schema import Config, known_keys, register
from batch_export.config.sentences import explain
from batch_export.errors import UsageError
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, Tolerance
from batch_export.sources.places import conf_dir
from batch_export.spec import RunSpec
from batch_export.words import nearest

TINY = """
_target_: mine.tiny
tags: [mine, small]
width: ${seed}
seed: 8
inputs:
  x: {dtype: float32, shape: [batch, 8]}
axes:
  batch: {example: 2, check: [1, 5]}
"""


def composed(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return compose("config", overrides=list(overrides))


def shipped(*more: Path) -> ConfigGroups:
    return ConfigGroups([("main", f"file://{conf_dir()}"), *(("user", f"file://{path}") for path in more)])


def spec_of(*overrides: str, groups: ConfigGroups | None = None) -> RunSpec:
    return run_spec(composed(*overrides), groups or shipped(), output_path=Path("outputs/x"), overrides=overrides)


def sentence(*overrides: str) -> str:
    """What a wrong command line is answered with."""
    try:
        spec_of(*overrides)
    except UsageError as error:
        return str(error)
    except HydraException as error:
        return explain(error, overrides)
    pytest.fail(f"{overrides} was accepted")


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tiny.yaml").write_text(TINY)
    return tmp_path


def test_every_shipped_config_is_readable_and_the_sweeps_are_the_ones_described() -> None:
    everything = spec_of("+sweep=all")
    assert everything.matrix.opsets == (18, 20, 21, 23)
    assert everything.matrix.dynamic == ("static", "full")
    assert [provider.name for provider in everything.matrix.providers] == ["cpu"]
    assert [exporter.name for exporter in everything.matrix.exporters] == ["core"]
    assert [model.name for model in everything.matrix.models] == shipped().names("model")
    assert len(everything.matrix.models) >= 24
    assert everything.measure.budget_s == 0.6
    nightly = spec_of("+sweep=nightly")
    assert nightly.matrix.opsets == tuple(range(13, 29))
    assert nightly.measure.refresh == "always"
    smoke = spec_of("+sweep=smoke")
    assert {provider.name for provider in smoke.matrix.providers} == {"cpu", "cpu_unoptimised", "reference"}
    assert 4 <= len(smoke.matrix.models) <= 10
    for group, read in (("provider", provider_spec), ("exporter", exporter_spec)):
        for name in shipped().names(group):
            assert read(name, shipped().load(group, name)).name == name


def test_without_a_sweep_the_matrix_is_small_and_real() -> None:
    spec = spec_of()
    assert spec.matrix.opsets == (20,)
    assert spec.matrix.models
    assert all("smoke" in model.tags for model in spec.matrix.models)


def test_a_single_value_stands_for_a_list_of_one() -> None:
    spec = spec_of("matrix.models=bert_tiny", "matrix.opsets=21", "matrix.dynamic=full")
    assert ([m.name for m in spec.matrix.models], spec.matrix.opsets, spec.matrix.dynamic) == (
        ["bert_tiny"],
        (21,),
        ("full",),
    )


def test_names_globs_and_tags_choose_models_in_order_and_once() -> None:
    spec = spec_of("matrix.models=[vit,'bert*','tag:vision',bert_tiny]")
    names = [model.name for model in spec.matrix.models]
    assert names[0] == "vit"
    assert len(names) == len(set(names))
    assert {name for name in shipped().names("model") if name.startswith("bert")} <= set(names)
    vision = {m.name for m in spec_of("matrix.models=['*']").matrix.models if "vision" in m.tags}
    assert vision
    assert vision <= set(names)


def test_what_environment_the_matrix_gave_its_models_is_known() -> None:
    given = spec_of("matrix.models=[cnn]", "matrix.env=['torch==2.11.*']").matrix
    assert given.env == given.models[0].env == ("torch==2.11.*",)
    assert spec_of("matrix.models=[cnn]").matrix.env == ()


def test_a_run_spec_survives_json() -> None:
    spec = spec_of("+sweep=all", "matrix.exclude=[{model: 'b*', opset: 18, reason: slow}]")
    assert spec.matrix.exclude[0].opset == "18"
    assert msgspec.json.decode(msgspec.json.encode(spec), type=RunSpec) == spec


def test_a_sweep_and_an_export_judge_by_the_same_defaults() -> None:
    assert spec_of().tolerances == DEFAULT_TOLERANCES


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_default_tolerances_leave_room_for_one_unit_in_the_last_place(dtype: str) -> None:
    bits = {"float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}[dtype]
    tolerance = DEFAULT_TOLERANCES[dtype]
    assert 2.0**-bits <= tolerance.rtol + tolerance.atol


def test_tolerances_and_paths() -> None:
    spec = spec_of("tolerances.float16.atol=0.5", "output.path=/somewhere")
    assert spec.tolerances["float16"] == Tolerance(0.5, 0.01)
    assert set(spec.tolerances) >= {"float64", "float32", "float16", "bfloat16"}
    assert spec.store_path == "/somewhere/store"
    assert spec.overrides == ("tolerances.float16.atol=0.5", "output.path=/somewhere")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("matrix.modelz=[a]", r"Unknown key 'matrix\.modelz' \(nearest: matrix\.models\)"),
        ("+matrix.modelz=[a]", r"Unknown key 'matrix\.modelz' \(nearest: matrix\.models\)"),
        ("runer.n_jobs=2", r"Unknown key 'runer\.n_jobs' \(nearest: runner\.n_jobs\)"),
        ("+unheard=1", r"Unknown key 'unheard'"),
        ("tolerances.flot32.atol=1", r"Unknown key 'tolerances\.flot32\.atol' \(nearest: tolerances\.float32\.atol\)"),
        ("matrix.exclude=[{modle: x, reason: y}]", r"Unknown key 'modle' in matrix\.exclude \(nearest: model\)"),
        ("matrix.exclude=[{model: x}]", r"matrix\.exclude\[0\] has no reason"),
        ("expectations=[{model: x}]", r"expectations\[0\] has no reason"),
        ("expectations=[{reason: x, stage: mismatsch}]", r"expectations\[0\]\.stage must be one of .*'mismatch'"),
        ("matrix.models=[bert_tny]", r"Unknown model 'bert_tny' \(nearest: bert_tiny"),
        ("matrix.models=['zzz*']", r"Unknown model 'zzz\*' \(known: "),
        ("matrix.models=['tag:visoin']", r"Unknown model 'tag:visoin' \(nearest: tag:vision"),
        ("matrix.providers=[cpuu]", r"Unknown provider 'cpuu' \(nearest: cpu"),
        ("matrix.exporters=[tort]", r"Unknown exporter 'tort' \(nearest: torch"),
        ("matrix.models=[]", r"The matrix is empty: matrix\.models has no entry"),
        ("matrix.opsets=[]", r"The matrix is empty: matrix\.opsets has no entry"),
        ("matrix.dynamic=null", r"The matrix is empty: matrix\.dynamic has no entry"),
        ("matrix.models=[3]", r"matrix\.models: 3 is not a word"),
        ("matrix.opsets=[6]", r"opset 6 is out of range, the exporter 'core' takes opsets 7 to 28"),
        ("matrix.opsets=[20,29]", r"opset 29 is out of range"),
        ("matrix.opsets=[true]", r"matrix\.opsets: True is not an opset"),
        ("matrix.opsets=['20']", r"matrix\.opsets: '20' is not an opset"),
        ("matrix.dynamic=[bacth]", r"matrix\.dynamic: 'bacth' is neither static, full or auto.*nearest: batch"),
        ("matrix.dynamic=[batch+full]", r"matrix\.dynamic: 'full' is neither"),
        ("runner.n_jobs=abc", r"runner\.n_jobs: Value 'abc' of type 'str' could not be converted to Integer"),
        ("runner.n_jobs=0", r"runner\.n_jobs must be a number of children, or -1"),
        ("runner.timeout_s=-1", r"runner\.timeout_s must be a positive number, got -1"),
        (
            "measure.refresh=allways",
            r"measure\.refresh must be one of missing, contended, always.*did you mean 'always'",
        ),
        ("measure.budget_s=0.1", r"measure\.min_s must lie between 0 and measure\.budget_s=0\.1"),
        ("output.path=", r"output\.path is empty\. Next step: name a folder"),
        ("store.path=''", r"store\.path is empty"),
        ("measure=null", r"measure: .*not Optional"),
        ("matrix.sample=???", r"matrix\.sample is \?\?\?, a value that has to be given\. Next step: give it one"),
        ("store.path=???", r"store\.path is \?\?\?, a value that has to be given"),
        ("tolerances.float32.rtol=-1", r"tolerances\.float32\.rtol must be zero or a positive number"),
        ("+sweep=al", r"Unknown sweep 'al' \(nearest: all\)"),
        ("sweep=all", r"write \+sweep=<name>"),
        ("model=bert_tiny", r"model=\.\.\. chooses nothing: write matrix\.models=\[\.\.\.\]"),
        ("runner=remote", r"Unknown runner 'remote' \(known: dask, local\)"),
        ("matrix.models=[a", r"The override 'matrix\.models=\[a' is malformed"),
    ],
)
def test_one_sentence_for_everything_wrong(override: str, said: str) -> None:
    text = sentence(override)
    assert re.search(said, text), text
    assert "\n" not in text
    assert "Traceback" not in text


def test_three_question_marks_are_a_glob_where_names_are_chosen() -> None:
    spec = spec_of("matrix.models=???", "matrix.providers=['???']", "matrix.exclude=[{model: '???', reason: short}]")
    assert {len(model.name) for model in spec.matrix.models} == {3}
    assert [provider.name for provider in spec.matrix.providers] == ["cpu"]


def test_opsets_out_of_our_range_are_fine_for_other_exporters_alone() -> None:
    assert spec_of("matrix.opsets=[12]", "matrix.exporters=[torchscript]").matrix.opsets == (12,)
    assert "'torchscript' takes opsets 7 to 20" in sentence("matrix.opsets=[29]", "matrix.exporters=[torchscript]")


def test_a_users_folder_adds_models(user_folder: Path) -> None:
    groups = shipped(user_folder)
    spec = spec_of("matrix.models=[tiny,'tag:mine']", groups=groups)
    assert [model.name for model in spec.matrix.models] == ["tiny"]
    assert spec.matrix.models[0].arguments == {"width": 8}


def test_a_config_may_start_from_another(user_folder: Path) -> None:
    (user_folder / "model" / "wide.yaml").write_text("defaults: [tiny, _self_]\nwidth: 16\ntags: []\n")
    (user_folder / "model" / "circle.yaml").write_text("defaults: [circle]\n")
    (user_folder / "model" / "orphan.yaml").write_text("defaults: [tinny]\n")
    groups = shipped(user_folder)
    wide = groups.load("model", "wide")
    assert (wide["width"], wide["_target_"], wide["tags"]) == (16, "mine.tiny", [])
    with pytest.raises(UsageError, match="includes itself: circle -> circle"):
        groups.load("model", "circle")
    with pytest.raises(UsageError, match=r"Unknown model 'tinny' \(nearest: tiny"):
        groups.load("model", "orphan")


@pytest.mark.parametrize("entry", ["/width@_here_: small", "optional /width: small"])
def test_defaults_of_a_model_name_models_only(user_folder: Path, entry: str) -> None:
    (user_folder / "width").mkdir()
    (user_folder / "width/small.yaml").write_text("width: 16\n")
    (user_folder / "model/narrow.yaml").write_text(f"defaults: [{{{entry}}}, tiny, _self_]\n")
    with pytest.raises(UsageError, match=r"model/narrow\.yaml: `defaults` may list configs of the group model only"):
        shipped(user_folder).load("model", "narrow")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inputs: {x: [", "model/broken.yaml is not valid YAML"),
        ("- a\n- b\n", "must be a mapping"),
        *(
            (f"defaults: {one}\n", "model/broken.yaml cannot be read: ")
            for one in ("tiny", "{tiny: 1}", "[1]", "[[a]]")
        ),
        ("# \udcff\n", r"model/broken\.yaml is not text in UTF-8 \(byte 2\)"),
        ("width: ${nowhere}\n", "model/broken.yaml cannot be resolved"),
        (
            "width: ${oc.env:NOT_SET_ANYWHERE}\n",
            "model/broken.yaml cannot be resolved: width: the environment variable 'NOT_SET_ANYWHERE' is not set. Next",
        ),
    ],
)
def test_a_malformed_file_is_named(user_folder: Path, text: str, said: str) -> None:
    (user_folder / "model" / "broken.yaml").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match=said):
        shipped(user_folder).load("model", "broken")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"kind": "onnxruntim", "execution_provider": "X"}, "kind must be one of onnxruntime, reference"),
        ({"kind": "onnxruntime"}, "execution_provider is missing"),
        ({"kind": "reference", "opset": [1, 2]}, r"unknown key 'opset' \(nearest: opsets\)"),
        ({"kind": "reference", "options": {"threads": "???"}}, r"'options\.threads' is \?\?\?, a value that has to be"),
        ({"kind": "reference", "opsets": [20, 18]}, r"opsets must be \[lowest, highest\]"),
        ({"kind": "reference", "opsets": "all"}, "does not fit"),
        ({"kind": "reference", "graph_optimization": "al"}, "graph_optimization must be one of"),
    ],
)
def test_wrong_provider_configs(config: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        provider_spec("mine", config)


@pytest.mark.parametrize(("key", "value"), [("_partial_", True), ("optimise", "???")])
def test_an_exporters_config_holds_no_words_of_hydras(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"exporter/mine: '{key}' is (a word of Hydra's instantiate|\?\?\?, a value)"):
        exporter_spec("mine", {"_target_": "mine.export", key: value})


@pytest.mark.parametrize("target", [None, 3, "export"])
def test_an_exporter_needs_a_dotted_target(target: object) -> None:
    with pytest.raises(UsageError, match="_target_ must be the dotted name of a callable"):
        exporter_spec("mine", {"_target_": target})


@pytest.mark.parametrize(("words", "expected"), [((), "auto"), (("verify.oracle=always",), "always")])
def test_the_oracle_is_every_models(words: tuple[str, ...], expected: str) -> None:
    assert {model.oracle for model in spec_of(*words).matrix.models} == {expected}


def test_an_oracle_of_another_word_is_refused() -> None:
    with pytest.raises(UsageError, match=r"verify\.oracle must be one of auto, always, never"):
        spec_of("verify.oracle=false")


def test_known_keys_are_the_schemas() -> None:
    keys = known_keys()
    for key in keys:
        assert OmegaConf.select(OmegaConf.structured(Config), key, throw_on_missing=False) is not None, key
    assert {"matrix.models", "runner.memory_gb", "tolerances.bfloat16.rtol", "store.path"} <= set(keys)
    assert nearest("matrix.opset", keys, 1) == ["matrix.opsets"]
