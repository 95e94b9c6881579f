"""Models that try what fails at some data; a module of its own, since pytest writes assertions of tests anew."""

from __future__ import annotations

import contextlib
import copy
import math

import torch


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0
    return x * 2


def followed_assertion(x: torch.Tensor) -> torch.Tensor:
    try:
        return asserted(x)
    except (AssertionError, KeyError):
        return x - 1


def followed_suppressed_assertion(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(AssertionError):
        x = asserted(x)
    return x + 1


def followed_number(x: torch.Tensor) -> torch.Tensor:
    try:
        assert int(x.sum()) > -100
        return x * 2
    except AssertionError:
        return x - 1


def caught_check(x: torch.Tensor) -> torch.Tensor:
    try:
        torch._assert(x.sum() > 0, "negative")
    except AssertionError:
        return x - 1
    return x * 2


def caught_matrix(x: torch.Tensor) -> torch.Tensor:
    try:
        made: torch.Tensor = torch.linalg.cholesky(x[:2, :2])
        return made
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return x[:2, :2]


def caught_index(x: torch.Tensor) -> torch.Tensor:
    try:
        return x[x[0].long()]
    except IndexError:
        return x


def caught_division(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * (1 / x.sum().item())
    except ZeroDivisionError:
        return x


def caught_whole_number(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * int(x.sum())
    except Exception:
        return x


def caught_logarithm(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * math.log(x.sum().item())
    except ValueError:
        return x


def swallowed_numbers(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * float(x.numpy().sum())
    except Exception:
        return x


def swallowed_copy(x: torch.Tensor) -> torch.Tensor:
    try:
        y = copy.deepcopy(x)
    except RuntimeError:
        y = x * 3
    return y + 1


def not_caught_in_eager_too(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(-1, 7)
    except RuntimeError:
        return x * 2


def not_caught_product(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * (x.sum().item() * 2)
    except ValueError:
        return x


def not_caught_told_otherwise(x: torch.Tensor) -> torch.Tensor:
    try:
        return asserted(x)
    except AssertionError as error:
        raise ValueError("no numbers above zero") from error


def not_caught_only_left(x: torch.Tensor) -> torch.Tensor:
    try:
        x = asserted(x)
    finally:
        x = x + 1
    return x


def not_caught_of_others(x: torch.Tensor) -> torch.Tensor:
    x = asserted(x)
    try:
        made: torch.Tensor = torch.linalg.cholesky(x[:2, :2]) + x[x[0].long() * 0]
        return made
    except (TypeError, NotImplementedError):
        return x


def not_caught_by_size(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + x[7]
    except IndexError:
        return x + x[0]
