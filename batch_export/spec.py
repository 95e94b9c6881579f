"""What a run was asked to do, as frozen plain data. Made by `config.py` from Hydra's configuration, read by everyone.

Nothing here imports Hydra, torch or onnx, and nothing here is ever a live object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Cell
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec

CORE_OPSETS = (7, 28)
"""The lowest and the highest opset of our own exporter."""

ANY_OPSETS = (7, 28)
"""The range for the other exporters: they say themselves what they can do, within what ONNX has."""

CORE_EXPORTER_TARGET = "batch_export.exporter"
"""`_target_` of the exporter config that stands for our own core (it has stages of its own: Capture and Translate)."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One leaf of a model's inputs.

    Attributes:
        path: where the leaf sits in the keyword arguments: a parameter's name, then dict keys (str) and list indices
            (int), e.g. `("input_dict", "tensor_x")` or `("input_list", 0)`.
        dtype: torch's name without the prefix, e.g. `float32`, `int64`, `bool`; empty for a constant.
        shape: sizes; a str is an axis name or a sum of axis names and integers such as `past+seq`.
        low: lowest value drawn (integers: inclusive); None means 0 for integers and the normal distribution for floats.
        high: highest value drawn (exclusive).
        fill: a value for every element, instead of drawn ones.
        constant: a plain value passed as it is; used when `dtype` is empty.
    """

    path: tuple[str | int, ...]
    dtype: str = ""
    shape: tuple[int | str, ...] = ()
    low: float | None = None
    high: float | None = None
    fill: float | None = None
    constant: Any = None


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """A place among a model's inputs where forward takes a cache object in place of a dict of tensors.

    Attributes:
        path: where it sits, as `InputSpec.path`.
        target: dotted name of its class, e.g. `transformers.DynamicCache`.
        arguments: keyword arguments of the class (plain data).
    """

    path: tuple[str | int, ...]
    target: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """A named axis: the size in the example inputs and the sizes at which a dynamic file is checked as well."""

    name: str
    example: int
    check: tuple[int, ...] = ()


GUARD_WORDS = ("warn", "error", "allow")
"""What may become of guards."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model of the matrix: a builder, its arguments, and inputs with named axes.

    Attributes:
        target: importable name of the builder, which returns a `torch.nn.Module`, e.g. `models.transformers.bert`.
        arguments: keyword arguments of the builder (plain data).
        requires: import names of the libraries that the builder needs beyond torch; a missing one skips the cells.
        seed: seed of torch's generator before the builder runs and before inputs are drawn.
        caches: which of the inputs' dicts forward takes as cache objects.
        seed_given: whether the config names it; a builder's argument of that name is given it then.
        tolerances: by dtype name, in place of the run's.
        output_names: names of the ONNX outputs, or empty to keep the exporter's.
        timeout_s: wall time of one action of this model; 0: the run's.
        memory_gb: private memory of a child that works on this model, in GiB; 0: the run's.
        variants: further values of the inputs to verify at the example sizes: `seed1`, `zeros`, `large`, `negative`,
            `positive`, `lowest`, `highest`, `turned`, `padding`, `all_padding`, and `empty` (`axes.variants` says which
            of them the inputs have).
        allow_nonfinite: whether outputs without one finite value at any input are meant so; a failure otherwise.
        guards: what becomes of a capture that holds for some sizes or data only: `warn` keeps its limits as facts,
            `error` makes any of them a failure, `allow` also keeps what is taken for granted about the data, once it
            agreed with the model.
        oracle: when eager also runs in float64, to tell rounding from export error: `auto`, `always` or `never`, see
            `oracle_need.py`.
        skip: why there is nothing to run, such as a model of a collection that cannot be built; empty when there is.
        env: requirements of an environment of its own, layered over this one; empty: this one.
    """

    name: str
    target: str
    arguments: dict[str, Any]
    inputs: tuple[InputSpec, ...]
    axes: tuple[AxisSpec, ...] = ()
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    seed: int = 0
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    timeout_s: float = 0.0
    memory_gb: float = 0.0
    variants: tuple[str, ...] = ()
    oracle: str = "never"
    allow_nonfinite: bool = False
    guards: str = "warn"
    seed_given: bool = False
    caches: tuple[CacheSpec, ...] = ()
    skip: str = ""
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExporterSpec:
    """A point of the exporter axis; `target` is `CORE_EXPORTER_TARGET` or names a callable that writes an ONNX file.

    Attributes:
        opsets: the lowest and the highest opset that it takes; cells at others are skipped.
        requires: import names of the libraries that it needs; a missing one skips the cells.
        env: requirements of an environment of its own, as a model's.
    """

    name: str
    target: str
    arguments: dict[str, Any] = field(default_factory=dict)
    opsets: tuple[int, int] = ANY_OPSETS
    requires: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


def environment_of(model: ModelSpec, exporter: ExporterSpec) -> tuple[str, ...]:
    """Returns the requirements of the environment that a model's cells of an exporter run in; empty: this one."""
    return tuple(sorted({*model.env, *exporter.env}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Some cells of a matrix: a glob for each axis, `*` by default."""

    model: str = "*"
    dynamic: str = "*"
    opset: str = "*"
    provider: str = "*"
    exporter: str = "*"

    def matches(self, cell: Cell) -> bool:
        """Returns whether a cell is one of them."""
        return all(fnmatchcase(word, getattr(self, axis)) for axis, word in cell.words.items())


@dataclass(frozen=True, slots=True)
class Exclusion(Pattern):
    """Cells left out of the matrix, and the reason that is shown."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expectation(Pattern):
    """Cells declared to fail: where they fail, why, and where one reads more. Strict."""

    reason: str = ""
    stage: str = "*"
    error_class: str = "*"
    link: str = ""


@dataclass(frozen=True, slots=True)
class MatrixSpec:
    """The axes of the matrix, names already resolved to specs (see `matrix.py` for the expansion).

    Attributes:
        chosen: names of all models that were chosen, before a shard took its part of them; empty: `models` are all.
        env: requirements that all models' environments were given (`matrix.env`); None: a run that does not say.
    """

    models: tuple[ModelSpec, ...]
    opsets: tuple[int, ...]
    dynamic: tuple[str, ...]
    providers: tuple[ProviderSpec, ...]
    exporters: tuple[ExporterSpec, ...]
    exclude: tuple[Exclusion, ...] = ()
    require_providers: bool = False
    chosen: tuple[str, ...] = ()
    env: tuple[str, ...] | None = None

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The values on each axis as words, as globs are matched with them; models of all shards. Every combination of
        them is a cell.
        """
        return {
            "model": self.chosen or tuple(model.name for model in self.models),
            "dynamic": self.dynamic,
            "opset": tuple(map(str, self.opsets)),
            "provider": tuple(provider.name for provider in self.providers),
            "exporter": tuple(exporter.name for exporter in self.exporters),
        }


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """How cells are run.

    Attributes:
        n_jobs: children at once; -1: one per core, -2: one less, and so on.
        timeout_s: wall time of one action.
        memory_gb: private memory of one child, in GiB; 0: 8, or three quarters of the machine's memory if that is less.
        threads: of one inference while results are compared.
        retries: how often an action that crashed, took too long or too much memory is tried again.
        allow_flaky: whether a cell that passed on a retry is as expected.
        engine: `local` or `dask`.
        address: of a dask scheduler, e.g. `tcp://10.0.0.1:8786`; empty: a cluster is started on this machine.
        shard: which part of the models this run took, such as `2/8`; empty: all.
        keep_alive: how long the server that children are forked from stays for the next command, such as `10m`; empty
            or `0`: it ends with the run.
    """

    n_jobs: int = -1
    timeout_s: float = 300.0
    memory_gb: float = 0.0
    threads: int = 1
    retries: int = 0
    allow_flaky: bool = False
    engine: str = "local"
    address: str = ""
    shard: str = ""
    keep_alive: str = ""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """How the store is used; where it lies is `RunSpec.store_path`.

    Attributes:
        verify: when the digests of stored files are compared with their content: `size` (never; sizes always are),
            `read` (when a process reads a file for the first time), `always` (at every lookup as well).
        remote: a second store behind the first: a folder or any URL that fsspec opens; empty: none.
        shared: whether other machines use the same folder at once, so that locks need leases.
    """

    verify: str = "read"
    remote: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that one run was asked to do; `baseline` names the run or the file that it is compared with."""

    matrix: MatrixSpec
    runner: RunnerSpec
    measure: MeasureSpec
    tolerances: dict[str, Tolerance]
    store_path: str
    output_path: str
    expectations: tuple[Expectation, ...] = ()
    overrides: tuple[str, ...] = ()
    baseline: str = ""
    store: StoreSpec = field(default_factory=StoreSpec)
