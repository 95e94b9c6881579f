"""stages/reference.py, stages/state.py and stages/eager.py, on modules written here."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from batch_export.errors import ModelError
from batch_export.numbers.values import RawTensor
from batch_export.runner import assemble
from batch_export.runtime.measuring import LatencyFacts, MeasureSpec
from batch_export.runtime.tensor_file import TensorFile
from batch_export.spec import AxisSpec, InputSpec, ModelSpec
from batch_export.stages import eager, reference
from batch_export.stages import model as model_room
from batch_export.stages.built import built
from batch_export.stages.state import ModuleState, same
from batch_export.stages.workbench import Workbench

Pair = namedtuple("Pair", ["first", "second"])


class Calls(nn.Module):
    """A module whose forward is a plain function; it has a weight and two buffers."""

    count: Tensor
    mean: Tensor

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.full((3,), torch.nan), persistent=False)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


class Bench:
    """What stages see of a workbench."""

    def __init__(self, scratch: Path, function: Callable[..., Any], check: tuple[int, ...] = (1, 5)) -> None:
        axis = AxisSpec("batch", 2, check)
        self.model = ModelSpec("calls", "", {}, (InputSpec(("x",), "float32", ("batch", 3)),), (axis,), seed=7)
        self.module = Calls(function)
        self.scratch = scratch
        self.built = built(self.module)
        self.again = Calls(function)

    def built_again(self) -> dict[str, str]:
        return built(self.again)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        return {"x": torch.arange(3.0 * sizes["batch"]).reshape(-1, 3)}


def execute(scratch: Path, function: Callable[..., Any], **options: Any) -> tuple[dict[str, Any], TensorFile]:
    bench: Any = Bench(scratch, function, **options)
    before = {name: buffer.clone() for name, buffer in bench.module.named_buffers()}
    output = reference.execute(bench)
    after = dict(bench.module.named_buffers())
    assert all(same(after[name], value) for name, value in before.items())
    return output.facts, TensorFile(output.files["reference"])


def test_inputs_and_outputs_of_all_cases_are_kept(tmp_path: Path) -> None:
    facts, stored = execute(tmp_path, lambda module, x: 2 * x * module.weight)
    assert [case["sizes"] for case in facts["cases"]] == [{"batch": 2}, {"batch": 1}, {"batch": 5}]
    assert [case["example"] for case in facts["cases"]] == [True, False, False]
    assert (facts["parameters"], facts["deterministic"], facts["mutations"]) == (3, True, [])
    assert facts["inputs"] == [{"name": "x", "dtype": "float32"}]
    assert facts["outputs"] == [{"name": "0", "dtype": "float32"}]
    assert stored.description == {"cases": facts["cases"]}
    for index, batch in enumerate((2, 1, 5)):
        x = np.arange(3.0 * batch, dtype=np.float32).reshape(-1, 3)
        np.testing.assert_array_equal(np.asarray(stored[f"case{index}/in/x"]), x)
        np.testing.assert_array_equal(np.asarray(stored[f"case{index}/out/0"]), 2 * x)


def test_trees_of_outputs_are_flattened_with_their_places(tmp_path: Path) -> None:
    def forward(module: Any, x: Tensor) -> Any:
        return {"logits": x, "none": None, "cache": [Pair(x > 1, x.shape[0]), (0.5, True)]}

    facts, stored = execute(tmp_path, forward)
    assert facts["outputs"] == [
        {"name": "logits", "dtype": "float32"},
        {"name": "cache.0.first", "dtype": "bool"},
        {"name": "cache.0.second", "dtype": "int64"},
        {"name": "cache.1.0", "dtype": "float32"},
        {"name": "cache.1.1", "dtype": "bool"},
    ]
    assert [np.asarray(stored[f"case2/out/{index}"]).shape for index in range(5)] == [(5, 3), (5, 3), (), (), ()]
    assert int(np.asarray(stored["case2/out/2"])) == 5


def test_bfloat16_and_complex_outputs_keep_their_dtypes(tmp_path: Path) -> None:
    facts, stored = execute(tmp_path, lambda module, x: (x.bfloat16(), torch.complex(x, -x).conj()))
    assert [fact["dtype"] for fact in facts["outputs"]] == ["bfloat16", "complex64"]
    value = stored["case0/out/0"]
    assert isinstance(value, RawTensor)
    np.testing.assert_array_equal(value.bits.reshape(-1)[:2], [0, 0x3F80])
    np.testing.assert_array_equal(np.asarray(stored["case0/out/1"]).reshape(-1)[1:3], [1 + 1j, 2 + 2j])


def test_changed_buffers_and_inputs_are_mutations(tmp_path: Path) -> None:
    def forward(module: Any, x: Tensor) -> Tensor:
        module.count.add_(len(x) - 1)
        module.mean = x.mean(dim=0)
        result = x.clone()
        x.mul_(3)
        return result

    facts, stored = execute(tmp_path, forward)
    assert facts["mutations"] == ["count", "mean", "x"]
    assert [int(np.asarray(stored[f"case{index}/mutation/count"])) for index in range(3)] == [1, 0, 4]
    np.testing.assert_array_equal(np.asarray(stored["case0/mutation/mean"]), [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(np.asarray(stored["case0/mutation/x"]), 3 * np.asarray(stored["case0/in/x"]))
    np.testing.assert_array_equal(np.asarray(stored["case0/out/0"]), np.asarray(stored["case0/in/x"]))


def test_an_output_that_is_a_buffer_keeps_the_value_of_its_run(tmp_path: Path) -> None:
    _, stored = execute(tmp_path, lambda module, x: module.count.add_(len(x)))
    assert [int(np.asarray(stored[f"case{index}/out/0"])) for index in range(3)] == [2, 1, 5]


def test_sizes_that_eager_rejects_are_facts(tmp_path: Path) -> None:
    def forward(module: Any, x: Tensor) -> Tensor:
        if len(x) == 1:
            raise ValueError("at least two rows\nare needed")
        return x

    facts, stored = execute(tmp_path, forward)
    assert [case["rejected"] for case in facts["cases"]] == ["", "ValueError: at least two rows", ""]
    assert "case1/in/x" not in stored
    assert "case2/out/0" in stored


def test_randomness_is_noise(tmp_path: Path) -> None:
    facts, _ = execute(tmp_path, lambda module, x: (x, x + torch.rand_like(x)))
    assert facts["deterministic"] is False
    for case in facts["cases"]:
        assert case["noise"][0] == 0.0
        assert 0.0 < case["noise"][1] < 1.0


def _of_kinds(number: float) -> dict[str, Tensor]:
    dense, meta = torch.tensor([[0.0, number], [torch.nan, 0.0]]), torch.ones(2, device="meta")
    rows = [torch.full((2,), number), torch.ones(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "coo": dense.to_sparse(),
            "csr": dense.to_sparse_csr(),
            "csc": dense.to_sparse_csc(),
            "bsr": dense.to_sparse_bsr((1, 1)),
            "quantised": torch.quantize_per_tensor(torch.full((3,), number), 0.1, 0, torch.qint8),
            "nested": torch.nested.nested_tensor(rows),
            "jagged": torch.nested.nested_tensor(rows, layout=torch.jagged),
            "mkldnn": torch.full((3,), number).to_mkldnn(),
            "meta": meta,
        }


@pytest.mark.parametrize("kind", _of_kinds(2.0))
def test_tensors_of_any_kind_are_compared(kind: str) -> None:
    given, again, another = _of_kinds(2.0)[kind], _of_kinds(2.0)[kind], _of_kinds(3.0)[kind]
    assert same(given, again)
    assert same(given, another) is (kind == "meta")
    assert not same(given, torch.ones(5, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["coo", "csr", "quantised", "nested", "jagged", "mkldnn"])
def test_buffers_of_any_kind_are_put_back(kind: str) -> None:
    given, module = _of_kinds(2.0)[kind], nn.Module()
    module.register_buffer("kept", given)
    state = ModuleState(module)
    assert state.changed() == {}
    state.restore()
    assert module.kept is given
    module.kept = _of_kinds(3.0)[kind]
    assert list(state.changed()) == ["kept"]
    state.restore()
    assert module.kept is given
    assert same(given, _of_kinds(2.0)[kind])


def test_only_the_smallest_case_runs_twice(tmp_path: Path) -> None:
    seen: list[int] = []

    def forward(module: Any, x: Tensor) -> Tensor:
        seen.append(len(x))
        return x + 1

    assert execute(tmp_path, forward)[0]["deterministic"] is True
    assert sorted(seen) == [1, 1, 2, 5]


def test_a_generator_that_moves_at_one_size_only_is_noise(tmp_path: Path) -> None:
    facts, _ = execute(tmp_path, lambda module, x: x + torch.rand_like(x) if len(x) == 5 else x)
    assert [any(case["noise"]) for case in facts["cases"]] == [False, False, True]


def test_randomness_that_the_generator_does_not_know_repeats_every_case(tmp_path: Path) -> None:
    own = torch.Generator()
    facts, _ = execute(tmp_path, lambda module, x: x + torch.rand(x.shape, generator=own))
    assert [any(case["noise"]) for case in facts["cases"]] == [True, True, True]


def test_a_rejected_smallest_case_proves_nothing(tmp_path: Path) -> None:
    own = torch.Generator()

    def forward(module: Any, x: Tensor) -> Tensor:
        if len(x) == 1:
            raise ValueError("two rows are needed")
        return x + torch.rand(x.shape, generator=own)

    facts, _ = execute(tmp_path, forward)
    assert [any(case["noise"]) for case in facts["cases"]] == [True, False, True]


def test_models_that_cannot_be_a_reference_are_named(tmp_path: Path) -> None:
    def failing(module: Any, x: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2")

    with pytest.raises(ModelError, match=r"model calls fails in eager PyTorch at \{'batch': 2\}: RuntimeError: mat1"):
        execute(tmp_path, failing)
    with pytest.raises(ModelError, match="model calls returns a str at 'label'; its forward must return tensors"):
        execute(tmp_path, lambda module, x: {"label": "cat"})
    with pytest.raises(ModelError, match="random shapes cannot be compared"):
        execute(tmp_path, lambda module, x: torch.rand(1000).nonzero()[: int(torch.randint(1, 900, ()))])
    with pytest.raises(ModelError, match="cannot be compared"):
        execute(tmp_path, lambda module, x: x.to_sparse())


def test_output_names_of_the_config_are_used(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, lambda module, x: (x, x))
    bench.model = replace(bench.model, output_names=("a", "b"))
    assert [fact["name"] for fact in reference.execute(bench).facts["outputs"]] == ["a", "b"]


def test_state_puts_the_same_tensors_back() -> None:
    module = Calls(lambda module, x: x)
    buffers = dict(module.named_buffers())
    state = ModuleState(module)
    with torch.inference_mode():
        module.mean = torch.ones(3)
        module.count.add_(5)
    assert set(state.changed()) == {"mean", "count"}
    state.restore()
    assert {name: id(buffer) for name, buffer in module.named_buffers()} == {name: id(b) for name, b in buffers.items()}
    assert state.changed() == {}
    module.count.add_(1)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), True),
        (torch.tensor([1.0, torch.nan]), torch.tensor([torch.nan, 1.0]), False),
        (torch.tensor([1.0]), torch.tensor([2.0]), False),
        (torch.tensor([1]), torch.tensor([1.0]), False),
        (torch.ones(2), torch.ones(1), False),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.zeros(1), torch.tensor([torch.nan]), False),
    ],
)
def test_same(one: Tensor, other: Tensor, expected: bool) -> None:
    assert same(one, other) is expected


def test_eager_is_timed_and_the_state_put_back(tmp_path: Path) -> None:
    modes = set()

    def forward(module: Any, x: Tensor) -> Tensor:
        module.count.add_(1)
        modes.add((torch.is_inference_mode_enabled(), torch.get_num_threads()))
        return x + 1

    bench: Any = Bench(tmp_path, forward)
    threads = torch.get_num_threads()
    output = eager.execute(bench, MeasureSpec(budget_s=0.1, min_s=0.01, threads=1))
    facts = msgspec.convert(output.facts["latency_ms"], LatencyFacts)
    assert facts.runs >= 20
    assert modes == {(True, 1)}
    assert int(bench.module.count) == 0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("forward", "random"),
    [
        (lambda module, x: x + torch.rand(()), True),
        (lambda module, x: x + 1e-6 * torch.rand_like(x), False),
        (lambda module, x: torch.randint(0, 1000, (9,)), True),
        (lambda module, x: x, False),
    ],
)
def test_randomness_beyond_the_tolerances_is_a_fact(tmp_path: Path, forward: Callable[..., Any], random: bool) -> None:
    facts, _ = execute(tmp_path, forward)
    assert facts["random"] is random


@pytest.mark.parametrize("returned", [None, (), {"a": None}])
def test_a_model_that_returns_no_tensor_is_told(tmp_path: Path, returned: Any) -> None:
    with pytest.raises(ModelError, match=r"returns no tensor.*Next step"):
        execute(tmp_path, lambda module, x: returned)


def test_a_builder_that_makes_other_tensors_when_called_again_is_told(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, lambda module, x: x * module.weight)
    assert "built_again" not in reference.execute(bench).facts
    bench.again.weight = nn.Parameter(torch.zeros(3))
    told = reference.execute(bench).facts
    assert told["built_again"]["tensors"] != told["built"]["tensors"]
    steps = [(None, SimpleNamespace(mnemonic="Reference", facts=told))]
    unlike = assemble._unlike_reference(SimpleNamespace(steps=steps))  # type: ignore[arg-type]
    assert unlike == {"unlike_reference": {"a second model of it": ["tensors"]}}


def test_a_builder_that_runs_once_in_a_process_is_not_told_to_be_seeded(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, lambda module, x: x * module.weight)

    def fails() -> None:
        raise RuntimeError("the operator is registered already")

    bench.built_again = fails
    assert "built_again" not in reference.execute(bench).facts


def test_a_workbench_builds_again_what_is_built_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_room, "build", lambda spec: nn.Linear(2, 2))
    given: Any = SimpleNamespace(dynamic=None)
    bench = Workbench(given, given, given, tmp_path)
    assert bench.built["tensors"] != (bench.built_again() or {})["tensors"]
    bench.build_seconds = 1.0
    assert bench.built_again() is None


def test_special_values_that_cannot_be_made_are_no_refusal_of_the_models(tmp_path: Path) -> None:
    bench: Any = Bench(tmp_path, lambda module, x: x)
    bench.model = replace(bench.model, variants=("zeros", "turned"))

    def inputs(sizes: Mapping[str, int], variant: str = "") -> dict[str, Any]:
        if variant:
            raise RuntimeError("no subtraction")
        return {"x": torch.ones(sizes["batch"], 3)}

    bench.inputs = inputs
    with pytest.raises(ModelError, match=r"inputs for verify\.special: zeros cannot be made: RuntimeError: no subtrac"):
        reference.execute(bench)
