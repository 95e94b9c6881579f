"""Which sizes of a model are left alone, since running them would take long."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
import torch

from batch_export.exporter import export
from batch_export.exporter.capture import guard_trials
from batch_export.exporter.capture.fake_runs import fake_run, refusal
from batch_export.exporter.capture.trial_costs import TrialCosts, computing

pytestmark = pytest.mark.sampled


def costs(*runs: tuple[int, float]) -> TrialCosts:
    made = TrialCosts()
    for elements, seconds in runs:
        made.note(elements, seconds, has_ended=True)
    return made


def test_more_elements_than_those_of_a_run_that_took_long_are_left_alone() -> None:
    for found in (costs((100, 0.1), (1000, 2.6), (1200, 3.0)), costs((100, 0.1), (1000, 11.0))):
        assert not found.are_left_alone(1000)
        assert found.are_left_alone(1001)


def test_one_run_that_took_long_for_something_else_tells_nothing() -> None:
    """What is loaded or compiled while a model runs is so once."""
    assert not costs((12, 2.6)).are_left_alone(1000)
    assert not costs((12, 2.6), (12, 0.01), (20, 2.7)).are_left_alone(1000)
    assert costs((12, 2.6), (20, 2.7)).are_left_alone(13)


def test_what_grows_with_the_elements_is_left_alone_before_it_takes_long() -> None:
    found = costs((1024, 0.24), (2048, 0.52), (4096, 1.36))
    assert not found.are_left_alone(8192)  # 3.6 s
    assert found.are_left_alone(16384)


def test_what_little_more_elements_took_tells_nothing_of_many_more() -> None:
    assert not costs((4, 0.001), (6, 0.004)).are_left_alone(320_000)
    assert not costs((1000, 0.2), (1001, 0.4)).are_left_alone(320_000)
    assert not costs((4, 1.5)).are_left_alone(320_000)


def test_what_pythons_collector_takes_is_no_part_of_a_run() -> None:
    held = [[one] for one in range(1_000_000)]
    begun = time.thread_time()
    with computing() as seconds:
        gc.collect()
    assert held[0] == [0]
    assert seconds[0] < (time.thread_time() - begun) / 2


def test_a_run_that_the_model_refused_tells_nothing_of_others() -> None:
    found = costs((1024, 0.24))
    found.note(2048, 0.9, has_ended=False)
    assert not found.are_left_alone(320_000)


def test_there_is_time_left_until_all_runs_together_have_taken_long() -> None:
    found = costs(*((10, 0.5) for _ in range(30)))
    assert found.has_time_left
    for _ in range(10):
        found.note(10, 0.5, has_ended=False)
    assert not found.has_time_left


def test_several_sizes_that_agree_and_took_long_say_enough_of_larger_ones() -> None:
    found = costs((10, 8.0))
    agreeing = found.of_one_guard()
    for elements, seconds in ((256, 0.5), (512, 0.8), (768, 1.0), (1024, 1.4)):
        assert not agreeing.say_enough_of(2048)
        found.note(elements, seconds, has_ended=True)
        agreeing.elements.append(elements)
    assert agreeing.say_enough_of(2048)
    assert not agreeing.say_enough_of(128)
    assert not found.of_one_guard().say_enough_of(2048)


def test_sizes_that_agree_at_once_say_nothing_of_larger_ones() -> None:
    found = costs((10, 8.0))
    agreeing = found.of_one_guard()
    for elements in (256, 512, 768, 1024, 1280):
        found.note(elements, 0.2, has_ended=True)
        agreeing.elements.append(elements)
    assert not agreeing.say_enough_of(2048)


def test_two_sizes_that_are_nearly_the_same_say_nothing_of_growth_and_another_one_does() -> None:
    found = TrialCosts()
    for elements, seconds in ((200, 0.1), (1000, 1.4), (1500, 2.0), (1800, 2.4)):
        found.note(elements, seconds, has_ended=True)
    assert not found.are_left_alone(3000)
    assert found.are_left_alone(4200)


class SquareThatIsRefused(torch.nn.Module):
    """Makes a square of a size, which is refused from some size on whatever the numbers are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.eye(x.shape[0]).quantile(0.5)


def test_what_is_refused_by_its_size_is_not_made_with_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A square of 65537 is 17 GB, which ended the process before the model could refuse it."""
    made: list[int] = []
    tried = guard_trials.tried

    def noted(program: Any, module: Any, args: Any, *others: Any) -> Any:
        made.append(args[0].shape[0])
        return tried(program, module, args, *others)

    monkeypatch.setattr(guard_trials, "tried", noted)
    export(SquareThatIsRefused(), (torch.randint(9, (5, 3)),), dynamic_shapes=({0: "n"},))
    assert made
    assert max(made) < 20_000


class RowsOfASquare(torch.nn.Module):
    """Goes over rows one by one, and takes no more than 2**24 elements."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([one * 2 for one in x]).cumsum(0), x.quantile(0.5)


def test_rows_of_a_size_that_nobody_could_make_are_not_gone_over() -> None:
    """Without numbers 2**24 rows can be asked for, and each takes its time all the same."""
    run = fake_run(RowsOfASquare(), (torch.empty(2**24 + 1, 2, device="meta"),), {})
    assert run.is_too_large
    assert not run.refused
    assert not refusal(RowsOfASquare(), (torch.empty(2**24 + 1, 2, device="meta"),), {})
    assert not fake_run(RowsOfASquare(), (torch.empty(100, 2, device="meta"),), {}).is_too_large
