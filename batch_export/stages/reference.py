"""What eager PyTorch computes at the example sizes and at every check size: the values that files are judged by.

A workbench arrives; a tensor file with the inputs, outputs and mutated values of all cases leaves, and facts about
them. The module leaves as it came: its buffers are put back after every run. Nothing is exported here.

Facts: `cases` (`sizes`, `example`, `rejected`: "" or eager's words about these sizes, `noise`: the largest difference
of each output between two runs, `variant` where there is one), `parameters`, `deterministic`, `random` (two runs differ
by more than the default tolerances at ordinary inputs), `drew` (torch's generator moved in some run), `inputs` and
`outputs` (`name`, `dtype`), `mutations` (names of the buffers and inputs that the model changes), `built` (what the
builder made, see `built.py`), `built_again` (what it made when called once more, where these are other tensors). The
same `cases` are the tensor file's description. Eager in float64 is a step of its own (`oracle.py`), asked for where it
is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from batch_export import axes
from batch_export.calling import caches
from batch_export.calling.fast_paths import without_fast_paths
from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.errors import ModelError
from batch_export.numbers.compare import compare
from batch_export.numbers.values import RawTensor, Value, dtype_name, raw_dtype
from batch_export.runtime.tensor_file import TensorFileWriter
from batch_export.stages import for_config
from batch_export.stages.output import StageOutput
from batch_export.stages.state import ModuleState, same
from batch_export.stages.workbench import Workbench
from batch_export.words import class_and_line, error_line

_RUNS_OF_RANDOM = 10


@dataclass(slots=True)
class _Run:
    """One forward pass: outputs in order with their places in the returned tree, what it changed, and whether it drew
    random numbers from torch's generator.
    """

    outputs: list[tuple[str, Value]]
    mutations: dict[str, Value]
    drew: bool


def execute(bench: Workbench) -> StageOutput:
    """Runs the module at all its cases.

    Whether the model is deterministic is told by two things: the smallest case runs twice, and a case in which torch's
    generator moved does so too. If either finds a difference, every case runs twice.

    Raises:
        ModelError: the model fails at its example sizes, or returns something that is not a tensor or number.
    """
    made = bench.built  # whose builder may fork: the other process has a place of its own
    path = bench.scratch / "reference.tensors"
    facts, unsure = _written(bench, path, every_twice=False)
    if unsure:
        facts, _ = _written(bench, path, every_twice=True)
    return StageOutput(facts={**facts, "built": made, **_unlike(bench)}, files={"reference": path})


def _unlike(bench: Workbench) -> dict[str, Any]:
    """A fact where the builder makes other tensors when it is called again.

    One that runs once in a process (it registers operators, joins a process group) tells nothing by failing then: what
    it makes in other processes is held against this one.
    """
    try:
        again = bench.built_again()
    except Exception:
        return {}
    return {} if again is None or again["tensors"] == bench.built["tensors"] else {"built_again": again}


def _written(bench: Workbench, path: Path, every_twice: bool) -> tuple[dict[str, Any], bool]:
    """Writes the tensor file; returns the facts, and whether some case ran only once of a model that is random."""
    eager = Eager(bench)
    cases: list[dict[str, Any]] = []
    mutated: list[dict[str, Value] | None] = []
    once: set[int] = set()
    first: _Run | None = None
    random_values = drew = False
    planned = axes.cases(bench.model)
    repeated = _cheapest(bench)
    with TensorFileWriter(path) as writer:
        for index, (sizes, variant) in enumerate((case.sizes, case.variant) for case in planned):
            example = index == 0
            case: dict[str, Any] = {"sizes": sizes, "example": example, "rejected": "", "noise": []}
            case |= {"variant": variant} if variant else {}
            cases.append(case)
            mutated.append(None)
            try:
                run = eager.run(sizes, variant)
            except (MemoryError, ModelError):
                raise
            except Exception as error:
                words = class_and_line(error)
                if example:
                    raise ModelError(
                        f"model {bench.model.name} fails in eager PyTorch{f' at {sizes}' if sizes else ''}: {words}. "
                        "Next step: correct the model, or 'inputs' and 'axes' in its config"
                    ) from error
                case["rejected"] = words
                continue
            if example and not run.outputs and not run.mutations:
                raise ModelError(
                    f"model {bench.model.name}: forward returns no tensor, so that a file would compute nothing. "
                    "Next step: return the tensors that the file is to compute"
                )
            first = first or run
            mutated[index] = run.mutations
            drew |= run.drew
            if every_twice or run.drew or index == repeated or any(cases[0]["noise"]):
                case["noise"], differs = _noise(run, eager, sizes, variant)
                random_values |= differs and not variant
            else:
                case["noise"] = [0.0] * len(run.outputs)
                once.add(index)
            for name, value in eager.inputs(sizes, variant).items():
                writer.add(f"case{index}/in/{name}", value)
            for position, (_, value) in enumerate(run.outputs):
                writer.add(f"case{index}/out/{position}", value)
        mutations = list(dict.fromkeys(name for values in mutated if values for name in values))
        for index, values in enumerate(mutated):
            for name in mutations if values is not None else ():
                after = values.get(name) if values else None
                writer.add(f"case{index}/mutation/{name}", eager.value_after(name, cases[index], after))
        writer.description = {"cases": cases}
    inputs = eager.inputs(cases[0]["sizes"])
    random = any(any(case["noise"]) for case in cases)
    facts = {
        "cases": cases,
        "parameters": sum(parameter.numel() for parameter in bench.module.parameters()),
        "deterministic": not random,
        "random": random_values,
        "drew": drew,
        "inputs": [{"name": name, "dtype": dtype_name(value)} for name, value in inputs.items()],
        "outputs": [{"name": name, "dtype": dtype_name(value)} for name, value in (first.outputs if first else ())],
        "mutations": mutations,
    }
    # A case that eager rejects says nothing about randomness, so the others are then repeated instead.
    return facts, bool(once) and (random or bool(cases[repeated]["rejected"]))


def _cheapest(bench: Workbench) -> int:
    """Returns where the case with the fewest elements in its inputs is, among those with ordinary values."""
    sizes = [case.sizes for case in axes.cases(bench.model) if not case.variant]
    shapes = [leaf.shape for leaf in bench.model.inputs if leaf.dtype]
    elements = [sum(math.prod(axes.size_of(entry, case) for entry in shape) for shape in shapes) for case in sizes]
    usable = [index for index, count in enumerate(elements) if count > 0] or [0]
    return min(usable, key=lambda index: elements[index])


class Eager:
    """Runs the module, each time from the same state and on fresh inputs."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._state = ModuleState(bench.module)
        leaves = [leaf for leaf in bench.model.inputs if leaf.dtype]
        self._paths = dict(zip(axes.input_names(bench.model), (leaf.path for leaf in leaves), strict=True))
        torch.manual_seed(bench.model.seed)

    def inputs(self, sizes: Mapping[str, int], variant: str = "") -> dict[str, Value]:
        """Returns the input tensors' values by name."""
        tensors = self._tensors(bench_inputs(self._bench, sizes, variant))
        return {name: to_value(tensor) for name, tensor in tensors.items()}

    def run(self, sizes: Mapping[str, int], variant: str = "") -> _Run:
        """Runs once; the random generator goes on where it was, so that two runs of a random model differ."""
        arguments = self._made(sizes, variant)
        tensors = self._tensors(arguments)
        originals = {name: tensor.clone() for name, tensor in tensors.items()}
        generator = torch.get_rng_state()
        try:
            # Without the stance cond and scan are compiled anew for every size, and a compiled part is not eager.
            with torch.no_grad(), torch.compiler.set_stance("force_eager"), without_fast_paths():
                outputs = self._outputs(for_config.called(self._bench.module, **arguments))
            mutated = self._state.changed()
        finally:
            self._state.restore()
        mutated |= {name: tensor for name, tensor in tensors.items() if not same(tensor, originals[name])}
        drew = not torch.equal(generator, torch.get_rng_state())
        return _Run(outputs, {name: to_value(tensor) for name, tensor in mutated.items()}, drew)

    def _made(self, sizes: Mapping[str, int], variant: str) -> dict[str, Any]:
        """The inputs. Special values of sizes that there are can be made: to leave them out is for the model to say."""
        try:
            return bench_inputs(self._bench, sizes, variant)
        except Exception as error:
            if not variant or 0 in sizes.values() or isinstance(error, MemoryError):
                raise
            words = f"inputs for verify.special: {variant} cannot be made: {class_and_line(error)}"
            raise ModelError(f"model {self._bench.model.name}: {words}") from error

    def value_after(self, name: str, case: Mapping[str, Any], after: Value | None) -> Value:
        """Returns `after`, or the value from before where this case left the buffer or input alone."""
        if after is not None:
            return after
        if name in self._paths:
            return self.inputs(case["sizes"], case.get("variant", ""))[name]
        return to_value(self._state.value(name))

    def _tensors(self, arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for name, path in self._paths.items():
            value: Any = arguments
            for key in path:
                value = value[key]
            tensors[name] = value
        return tensors

    def _outputs(self, returned: Any) -> list[tuple[str, Value]]:
        caches.register()
        outputs: list[tuple[str, Value]] = []
        for keys, leaf in leaves_with_paths(returned):
            if leaf is None:
                continue
            name = ".".join(_key_name(key) for key in keys) or str(len(outputs))
            if isinstance(leaf, torch.Tensor):
                # A copy: an output may be a view of a buffer that is put back, or of an input.
                outputs.append((name, to_value(leaf.detach().clone())))
            elif isinstance(leaf, bool | int | float):
                dtype = np.bool_ if isinstance(leaf, bool) else np.int64 if isinstance(leaf, int) else np.float32
                outputs.append((name, np.asarray(leaf, dtype=dtype)))
            else:
                raise ModelError(
                    f"model {self._bench.model.name} returns a {type(leaf).__name__} at {name!r};"
                    " its forward must return tensors, numbers, None, and lists, tuples, dicts or registered classes of"
                    " them"
                )
        if self._bench.model.output_names and len(self._bench.model.output_names) == len(outputs):
            named = zip(self._bench.model.output_names, outputs, strict=True)
            return [(name, value) for name, (_, value) in named]
        return outputs


def bench_inputs(bench: Workbench, sizes: Mapping[str, int], variant: str) -> dict[str, Any]:
    """Returns the keyword arguments of one case."""
    return bench.inputs(sizes, variant) if variant else bench.inputs(sizes)


def to_value(tensor: torch.Tensor) -> Value:
    """Returns a tensor's value as the runtime room takes it; bfloat16 and float8 keep their bits.

    Raises:
        ModelError: the tensor is sparse, quantised, or of a dtype that neither numpy nor `RawTensor` has.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.detach().cpu()
    try:
        plain = plain.resolve_conj().resolve_neg().contiguous()
        bits = raw_dtype(name)
        if bits is not None:
            return RawTensor(name, plain.view(getattr(torch, bits.name)).numpy())
        return plain.numpy()
    except (TypeError, RuntimeError) as error:
        raise ModelError(f"a {tensor.layout} tensor of dtype {name} cannot be compared: {error_line(error)}") from error


def _noise(one: _Run, eager: Eager, sizes: Mapping[str, int], variant: str) -> tuple[list[float], bool]:
    """Returns each output's largest difference from that of other runs, and whether one is beyond the tolerances.

    One more run shows whether there is any; how large it gets takes `_RUNS_OF_RANDOM` more: where all elements hang on
    one draw, two runs may be near each other by chance.
    """
    noise, differs = _difference(one, eager.run(sizes, variant))
    for _ in range(_RUNS_OF_RANDOM if differs else 0):
        again, _ = _difference(one, eager.run(sizes, variant))
        noise = [max(pair) for pair in zip(noise, again, strict=True)]
    return noise, differs


def _difference(one: _Run, other: _Run) -> tuple[list[float], bool]:
    noise, differs = [], False
    for (name, expected), (_, actual) in zip(one.outputs, other.outputs, strict=True):
        facts = compare(name, expected, actual)
        if facts.expected_shape != facts.actual_shape:
            raise ModelError(
                f"output {name!r} has the shape {facts.expected_shape} in one eager run and {facts.actual_shape} in the"
                " next; a model with random shapes cannot be compared"
            )
        noise.append(facts.max_abs or 0.0)
        differs = differs or facts.outside > 0
    return noise, differs


def _key_name(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
