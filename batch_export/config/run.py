"""From Hydra's composed configuration to a frozen `RunSpec`: names, globs and tags become specs, wrong values become
one sentence each.

Nothing is exported, run or written here, and nothing past this module sees Hydra or omegaconf.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec
from omegaconf import DictConfig, OmegaConf

from batch_export.axes import SEED, VARIANTS
from batch_export.config.chosen import Share, sampled
from batch_export.config.chosen import specs as model_specs
from batch_export.config.groups import ConfigGroups
from batch_export.config.hydra_words import unmeant
from batch_export.config.schema import Config
from batch_export.config.sentences import unknown_key
from batch_export.environments.request import replaced, request
from batch_export.errors import UsageError
from batch_export.exact_json import beyond_64_bits
from batch_export.judge import oracle_need
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Cell, Stage
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import OPTIMISATION_LEVELS, ProviderSpec
from batch_export.runtime.registered import kinds, runtime
from batch_export.sources.closure import local_roots, refuse_two_builders
from batch_export.spans import seconds_of
from batch_export.spec import (
    ANY_OPSETS,
    CORE_EXPORTER_TARGET,
    CORE_OPSETS,
    Exclusion,
    Expectation,
    ExporterSpec,
    MatrixSpec,
    ModelSpec,
    RunnerSpec,
    RunSpec,
    StoreSpec,
)
from batch_export.words import nearest

REFRESH_WORDS = ("missing", "contended", "always")
VERIFY_WORDS = ("size", "read", "always")
ENGINES = ("local", "dask")
DYNAMIC_WORDS = ("static", "full", "auto")
STAGES = get_args(Stage)
_OF_GLOBS = (*(f"matrix.{key}" for key in Cell.axes().values()), "matrix.exclude", "expectations")
"""Keys whose words may be globs: there `???` means all names of three letters."""

_T = TypeVar("_T")


def run_spec(config: DictConfig, groups: ConfigGroups, *, output_path: Path, overrides: Sequence[str] = ()) -> RunSpec:
    """Turns the composed configuration into what the run is asked to do.

    Args:
        config: Hydra's result, without its `hydra` node.
        groups: where the configs of models, providers and exporters are found.
        output_path: the run's folder.
        overrides: the command line's overrides, kept for the record.

    Raises:
        UsageError: a value that cannot be meant; one sentence.
    """
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    _refuse_unknown(plain, Config)
    for key in sorted(OmegaConf.missing_keys(config)):
        if not key.startswith(_OF_GLOBS):
            raise UsageError(f"{key} is ???, a value that has to be given. Next step: give it one, with {key}=...")
    for group in ("output", "store"):
        if not plain[group]["path"].strip():
            step = "`.` is the current one" if group == "output" else "it holds nothing but the store"
            raise UsageError(f"{group}.path is empty. Next step: name a folder; {step}")
    return RunSpec(
        matrix=_verified(_matrix(plain["matrix"], groups, plain["runner"]["shard"]), plain["verify"]),
        runner=_runner(plain["runner"]),
        measure=_measure(plain["measure"]),
        tolerances={str(name): _tolerance(str(name), entry) for name, entry in plain["tolerances"].items()},
        store_path=str(Path(plain["store"]["path"]).expanduser().absolute()),
        output_path=str(output_path.absolute()),
        expectations=tuple(_expectation(index, entry) for index, entry in enumerate(plain["expectations"])),
        overrides=tuple(overrides),
        baseline=plain["baseline"],
        store=_store(plain["store"]),
    )


def provider_spec(name: str, config: Mapping[str, Any]) -> ProviderSpec:
    """Reads a provider's config (`conf/provider/<name>.yaml`).

    Raises:
        UsageError: a key or value that a provider does not have.
    """
    where = f"provider/{name}"
    if problem := unmeant(config):
        raise UsageError(f"{where}: {problem}")
    spec = _convert({"name": name, **config}, ProviderSpec, where)
    _one_of(f"{where}: kind", spec.kind, kinds())
    kind = runtime(spec.kind)
    _one_of(f"{where}: graph_optimization", spec.graph_optimization, OPTIMISATION_LEVELS)
    if kind.places and not spec.execution_provider:
        raise UsageError(f"{where}: execution_provider is missing; name one, such as CPUExecutionProvider")
    if spec.opsets[0] > spec.opsets[1]:
        raise UsageError(f"{where}: opsets must be [lowest, highest], got {list(spec.opsets)}")
    _of_devices(where, spec, kind)
    if spec.env and not kind.served:
        raise UsageError(f"{where}: {kind.called} cannot run in an environment of its own; remove 'env'")
    if spec.variables and not kind.apart(spec):
        raise UsageError(
            f"{where}: variables are those of a runtime's own process, and {kind.called} runs in ours without 'env'"
        )
    if spec.plugin and not kind.served:
        raise UsageError(f"{where}: {kind.called} takes no plug-in execution providers; remove 'plugin'")
    if spec.env:
        try:
            request(spec.env, kind.language)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
    elif kind.language != "python":
        raise UsageError(f"{where}: {kind.called} runs in an environment of its own; name its packages in 'env'")
    return spec


def _of_devices(where: str, spec: ProviderSpec, kind: Runtime) -> None:
    """Refuses what no runtime without execution providers has, and numbers out of range."""
    said = {"device": spec.device, "io_binding": spec.io_binding, "after": spec.after, "plugin": spec.plugin}
    given = [name for name, value in said.items() if value]
    if given and not kind.places:
        raise UsageError(f"{where}: {given[0]} is said of execution providers, and {kind.called} has none; remove it")
    if spec.device < 0:
        raise UsageError(f"{where}: device must be an index from 0 on, got {spec.device}")
    if spec.execution_provider == "CPUExecutionProvider" and (spec.device or spec.after):
        said_of = "has one device" if spec.device else "leaves nothing to other execution providers"
        raise UsageError(f"{where}: CPUExecutionProvider {said_of}; remove '{'device' if spec.device else 'after'}'")
    if spec.device and "device_id" in spec.options:
        raise UsageError(f"{where}: the device is said twice, as device={spec.device} and in options; remove one")
    if spec.after and spec.plugin:
        raise UsageError(f"{where}: a plug-in's nodes that it leaves go to the CPU; remove 'after'")
    if spec.warm_up < 0:
        raise UsageError(f"{where}: warm_up must be a number of runs from 0 on, got {spec.warm_up}")
    if not 0 <= spec.fallback_limit <= 1:
        raise UsageError(f"{where}: fallback_limit must be a share from 0 to 1, got {spec.fallback_limit}")


def exporter_spec(name: str, config: Mapping[str, Any]) -> ExporterSpec:
    """Reads an exporter's config (`conf/exporter/<name>.yaml`): `_target_`, `opsets`, `requires`, `env`, and keyword
    arguments for it.

    Raises:
        UsageError: `_target_` is missing or not a dotted name, `opsets` is no range, or `env` names no packages.
    """
    arguments = dict(config)
    if problem := unmeant(arguments):
        raise UsageError(f"exporter/{name}: {problem}")
    if (large := beyond_64_bits(arguments)) is not None:
        raise UsageError(f"exporter/{name}: the whole number {large} has more than 64 bits; write it as a text")
    target = arguments.pop("_target_", None)
    if not isinstance(target, str) or "." not in target:
        raise UsageError(
            f"exporter/{name}: _target_ must be the dotted name of a callable, such as my_package.my_export, "
            f"got {target!r}"
        )
    known = CORE_OPSETS if target == CORE_EXPORTER_TARGET else ANY_OPSETS
    given = arguments.pop("opsets", None)
    opsets = known if given is None else _opset_range(f"exporter/{name}", given)
    where = f"exporter/{name}"
    requires = _words(f"{where}: requires", arguments.pop("requires", None))
    return ExporterSpec(
        name,
        target,
        requires=requires,
        env=_environment(f"{where}: env", arguments.pop("env", None)),
        arguments=arguments,
        opsets=(max(known[0], opsets[0]), min(known[1], opsets[1])),
    )


def _environment(where: str, value: Any) -> tuple[str, ...]:
    requirements = _words(where, value)
    try:
        request(requirements)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    return requirements


def _opset_range(where: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(one) is int for one in value):
        raise UsageError(f"{where}: opsets must be [lowest, highest], got {value!r}")
    lowest, highest = value
    if lowest > highest:
        raise UsageError(f"{where}: opsets must be [lowest, highest], got {value!r}")
    return lowest, highest


def _matrix(entry: Mapping[str, Any], groups: ConfigGroups, shard: str = "") -> MatrixSpec:
    chosen = {key: _words(f"matrix.{key}", entry[key]) for key in ("models", "dynamic", "providers", "exporters")}
    opsets = _opset_numbers(entry["opsets"])
    for key, values in (*chosen.items(), ("opsets", opsets)):
        if not values:
            raise UsageError(f"The matrix is empty: matrix.{key} has no entry. Next step: give it at least one")
    exporters = tuple(exporter_spec(name, groups.load("exporter", name)) for name in _pick(groups, chosen, "exporter"))
    providers = tuple(provider_spec(name, groups.load("provider", name)) for name in _pick(groups, chosen, "provider"))
    _check_opsets(opsets, exporters)
    share = Share(entry["sample"], entry["seed"], shard)
    names = sampled(chosen["models"], groups, share)
    models = model_specs(share.part_of(names), groups)
    environment = _environment("matrix.env", entry["env"])
    if environment:
        models = tuple(replace(model, env=replaced(model.env, environment)) for model in models)
    own = groups.own("model")
    for model in models:
        if model.name in own:
            refuse_two_builders(model.name, model.target, local_roots())
    _check_dynamic(chosen["dynamic"], models)
    return MatrixSpec(
        models=models,
        opsets=opsets,
        dynamic=chosen["dynamic"],
        providers=providers,
        exporters=exporters,
        exclude=tuple(_exclusion(index, item) for index, item in enumerate(entry["exclude"])),
        require_providers=entry["require_providers"],
        chosen=tuple(names) if shard else (),
        env=environment,
    )


def _verified(matrix: MatrixSpec, entry: Mapping[str, Any]) -> MatrixSpec:
    """Gives every model the values that its files are verified with besides the ordinary ones."""
    seeds = entry["seeds"]
    if seeds < 0:
        raise UsageError(f"verify.seeds is the number of further draws of the inputs, 0 or more; got {seeds}")
    for word in entry["special"]:
        _one_of("verify.special", word, VARIANTS)
    _one_of("verify.oracle", entry["oracle"], oracle_need.WORDS)
    variants = (*(f"{SEED}{number + 1}" for number in range(seeds)), *entry["special"])
    models = tuple(replace(model, variants=variants, oracle=entry["oracle"]) for model in matrix.models)
    return replace(matrix, models=models)


def _refuse_unknown(plain: Mapping[Any, Any], schema: type, prefix: str = "") -> None:
    """`+key=value` gets past Hydra's own check of keys; this is where such a key ends."""
    hints = get_type_hints(schema)
    for key, value in plain.items():
        if key not in hints:
            raise UsageError(unknown_key(f"{prefix}{key}"))
        if is_dataclass(hints[key]) and isinstance(hints[key], type):
            if not isinstance(value, Mapping):
                raise UsageError(f"{prefix}{key} must be a mapping of keys to values, got {value!r}")
            _refuse_unknown(value, hints[key], f"{prefix}{key}.")


def _pick(groups: ConfigGroups, chosen: Mapping[str, tuple[str, ...]], group: str) -> list[str]:
    return groups.select(group, chosen[f"{group}s"])


def _words(key: str, value: Any) -> tuple[str, ...]:
    """A list of words; a single word stands for a list of one."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        if not isinstance(item, str) or not item.strip():
            raise UsageError(f"{key}: {item!r} is not a word; expected a list of names such as {key}=[a,b]")
    return tuple(dict.fromkeys(item.strip() for item in items))


def _opset_numbers(value: Any) -> tuple[int, ...]:
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int):
            raise UsageError(f"matrix.opsets: {item!r} is not an opset, which is an integer such as {CORE_OPSETS[0]}")
    return tuple(dict.fromkeys(items))


def _check_opsets(opsets: Sequence[int], exporters: Sequence[ExporterSpec]) -> None:
    """Refuses an opset that no exporter of the matrix takes; where one does, the others' cells are skipped."""
    for opset in opsets:
        if not any(exporter.opsets[0] <= opset <= exporter.opsets[1] for exporter in exporters):
            low, high = exporters[0].opsets
            raise UsageError(
                f"matrix.opsets: opset {opset} is out of range, the exporter {exporters[0].name!r} "
                f"takes opsets {low} to {high}"
            )


def _check_dynamic(settings: Sequence[str], models: Sequence[ModelSpec]) -> None:
    axes = sorted({axis.name for model in models for axis in model.axes})
    known = [*DYNAMIC_WORDS, *axes]
    for setting in settings:
        parts = [setting] if setting in DYNAMIC_WORDS else setting.split("+")
        for part in parts:
            if part in axes or (part == setting and part in DYNAMIC_WORDS):
                continue
            near = nearest(part, known)
            hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known)}"
            raise UsageError(
                f"matrix.dynamic: {part!r} is neither static, full or auto nor an axis of a chosen model ({hint})"
            )


def _runner(entry: Mapping[str, Any]) -> RunnerSpec:
    spec = RunnerSpec(**entry)
    if spec.n_jobs == 0:
        raise UsageError(
            "runner.n_jobs must be a number of children, or -1 for one per core (-2: one less, and so on), got 0"
        )
    _positive("runner.timeout_s", spec.timeout_s)
    if spec.memory_gb:
        _positive("runner.memory_gb", spec.memory_gb)
    _positive("runner.threads", spec.threads)
    if spec.retries < 0:
        raise UsageError(f"runner.retries must be zero or a positive number, got {spec.retries}")
    _one_of("runner.engine", spec.engine, ENGINES)
    if spec.address and spec.engine != "dask":
        raise UsageError("runner.address is a dask scheduler's. Next step: add runner=dask")
    try:
        seconds_of(spec.keep_alive)
    except ValueError as error:
        raise UsageError(f"runner.keep_alive: {error}; 0 is off") from error
    return spec


def _store(entry: Mapping[str, Any]) -> StoreSpec:
    spec = StoreSpec(verify=entry["verify"], remote=entry["remote"], shared=entry["shared"])
    _one_of("store.verify", spec.verify, VERIFY_WORDS)
    if spec.remote:
        refuse_secrets(spec.remote)
    return spec


def refuse_secrets(url: str) -> None:
    """A remote store's URL is written to `run.json`, to logs and to the command that is shown, so it holds no secret.

    Raises:
        UsageError: it has a user, a password or a query.
    """
    if "://" not in url:
        return
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query:
        raise UsageError(
            "store.remote must hold no user, password or query: it is written to the run's files. Next step: give the "
            "credentials where the storage's own library looks for them, such as AWS_ACCESS_KEY_ID or ~/.aws"
        )


def _measure(entry: Mapping[str, Any]) -> MeasureSpec:
    spec = MeasureSpec(**entry)
    _one_of("measure.refresh", spec.refresh, REFRESH_WORDS)
    for key in ("budget_s", "min_runs", "threads"):
        _positive(f"measure.{key}", getattr(spec, key))
    if not 0 <= spec.min_s <= spec.budget_s:
        raise UsageError(f"measure.min_s must lie between 0 and measure.budget_s={spec.budget_s:g}, got {spec.min_s:g}")
    return spec


def _tolerance(name: str, entry: Mapping[str, Any]) -> Tolerance:
    for key in ("atol", "rtol"):
        if not (math.isfinite(entry[key]) and entry[key] >= 0):
            raise UsageError(f"tolerances.{name}.{key} must be zero or a positive number, got {entry[key]}")
    return Tolerance(atol=entry["atol"], rtol=entry["rtol"])


def _exclusion(index: int, entry: Mapping[str, Any]) -> Exclusion:
    spec = Exclusion(**entry)
    if not spec.reason:
        raise UsageError(f"matrix.exclude[{index}] has no reason; every exclusion says why, e.g. reason: too slow")
    return spec


def _expectation(index: int, entry: Mapping[str, Any]) -> Expectation:
    spec = Expectation(**entry)
    if not spec.reason:
        raise UsageError(f"expectations[{index}] has no reason; every expectation says why")
    if spec.stage != "*":
        _one_of(f"expectations[{index}].stage", spec.stage, STAGES)
    return spec


def _positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{key} must be a positive number, got {value:g}")


def _one_of(key: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        near = nearest(value, tuple(choices), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{key} must be one of {', '.join(choices)}, got {value!r}{hint}")


def _convert(values: Mapping[str, Any], to: type[_T], where: str) -> _T:
    known = tuple(item.name for item in fields(to))  # type: ignore[arg-type]  # a dataclass, which TypeVar cannot say
    for key in values:
        if key not in known:
            near = nearest(key, known, 1)
            hint = f"nearest: {near[0]}" if near else f"known: {', '.join(known)}"
            raise UsageError(f"The config {where}.yaml has the unknown key {key!r} ({hint})")
    try:
        return msgspec.convert(dict(values), to)
    except msgspec.ValidationError as error:
        raise UsageError(f"The config {where}.yaml does not fit: {error}") from error
