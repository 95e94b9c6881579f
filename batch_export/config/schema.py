"""The shape of the configuration as Hydra sees it: dataclasses whose keys and types every YAML file and override fit.

The axes of the matrix are typed `Any` and checked in `config.py`, so that `matrix.opsets=20` works as `[20]` does and
a wrong value gets a sentence that knows the right ones. Nothing is read or resolved here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from datetime import datetime
from functools import partial
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from batch_export.numbers.tolerances import DEFAULT_TOLERANCES
from batch_export.record import Cell
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import Exclusion, Expectation, RunnerSpec

SCHEMA_NAME = "batch_export_schema"


_Axes: Any = make_dataclass("_Axes", [(key, Any, field(default_factory=list)) for key in Cell.axes().values()])


@dataclass
class MatrixConfig(_Axes):  # type: ignore[misc]  # a key for each axis, which only the cell says
    exclude: list[Exclusion] = field(default_factory=list)
    require_providers: bool = False
    sample: int = 0
    seed: int = 0
    env: Any = field(default_factory=list)


def _unfrozen(spec: type) -> Any:
    """A dataclass with the keys and values of a frozen one: OmegaConf lets nobody override those of a frozen one."""
    hints = get_type_hints(spec)
    return make_dataclass(f"_{spec.__name__}", [(one.name, hints[one.name], one.default) for one in fields(spec)])


_Runner: Any = _unfrozen(RunnerSpec)
_Measure: Any = _unfrozen(MeasureSpec)


@dataclass
class RunnerConfig(_Runner):  # type: ignore[misc]  # the keys of the spec
    pass


@dataclass
class MeasureConfig(_Measure):  # type: ignore[misc]  # the keys of the spec
    pass


_SPECIAL = ("zeros", "large", "negative", "positive", "lowest", "highest", "padding", "turned")


@dataclass
class VerifyConfig:
    """How many inputs files are verified with, and when eager runs in float64 as an oracle (auto, always, never)."""

    seeds: int = 0
    special: list[str] = field(default_factory=lambda: list(_SPECIAL))
    oracle: str = "auto"


@dataclass
class OutputConfig:
    path: str = "outputs"


@dataclass
class StoreConfig:
    path: str = "${output.path}/store"
    verify: str = "read"
    remote: str = ""
    shared: bool = False


@dataclass
class ToleranceConfig:
    atol: float = 0.0
    rtol: float = 0.0


def _default(dtype: str) -> ToleranceConfig:
    return ToleranceConfig(DEFAULT_TOLERANCES[dtype].atol, DEFAULT_TOLERANCES[dtype].rtol)


@dataclass
class TolerancesConfig:
    """By dtype of the eager output; a test holds the keys against the table that they have their values from."""

    float64: ToleranceConfig = field(default_factory=partial(_default, "float64"))
    float32: ToleranceConfig = field(default_factory=partial(_default, "float32"))
    float16: ToleranceConfig = field(default_factory=partial(_default, "float16"))
    bfloat16: ToleranceConfig = field(default_factory=partial(_default, "bfloat16"))
    float8_e4m3fn: ToleranceConfig = field(default_factory=partial(_default, "float8_e4m3fn"))
    float8_e4m3fnuz: ToleranceConfig = field(default_factory=partial(_default, "float8_e4m3fnuz"))
    float8_e5m2: ToleranceConfig = field(default_factory=partial(_default, "float8_e5m2"))
    float8_e5m2fnuz: ToleranceConfig = field(default_factory=partial(_default, "float8_e5m2fnuz"))


@dataclass
class Config:
    matrix: MatrixConfig = field(default_factory=MatrixConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    tolerances: TolerancesConfig = field(default_factory=TolerancesConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    expectations: list[Expectation] = field(default_factory=list)
    baseline: str = ""


def register() -> None:
    """Makes the schema known to Hydra, and the resolvers for the run's folder: `~`, and its name (milliseconds too)."""
    ConfigStore.instance().store(name=SCHEMA_NAME, node=Config)
    OmegaConf.register_new_resolver("batch_export_time", _time_of_day, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("batch_export_home", _at_home, replace=True)


def _at_home(path: str) -> str:
    """A path without `~`; for no path the current folder, since what begins there would begin at the root of all."""
    return os.path.expanduser(path) or os.curdir


def known_keys(schema: type = Config, prefix: str = "") -> tuple[str, ...]:
    """Every key that an override may name, dotted, inner nodes included."""
    keys: list[str] = []
    hints = get_type_hints(schema)
    for item in fields(schema):
        name = f"{prefix}{item.name}"
        keys.append(name)
        inner = hints[item.name]
        if isinstance(inner, type) and is_dataclass(inner):
            keys.extend(known_keys(inner, f"{name}."))
    return tuple(keys)


def _time_of_day() -> str:
    return datetime.now().strftime("%H-%M-%S-%f")[:-3]
