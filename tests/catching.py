"""Models that try what fails at some data; a module of its own, since pytest writes assertions of tests anew."""

from __future__ import annotations

import contextlib

import torch


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0
    return x * 2


def caught_assertion(x: torch.Tensor) -> torch.Tensor:
    try:
        return asserted(x)
    except (AssertionError, KeyError):
        return x - 1


def caught_suppressed_assertion(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(AssertionError):
        x = asserted(x)
    return x + 1


def followed_number(x: torch.Tensor) -> torch.Tensor:
    try:
        assert int(x.sum()) > -100
        return x * 2
    except Exception:
        return x - 1


def caught_check(x: torch.Tensor) -> torch.Tensor:
    try:
        torch._assert(x.sum() > 0, "negative")
    except AssertionError:
        return x - 1
    return x * 2


def caught_matrix(x: torch.Tensor) -> torch.Tensor:
    try:
        return torch.linalg.cholesky(x[:2, :2])
    except torch.linalg.LinAlgError:
        return x[:2, :2]


def caught_index(x: torch.Tensor) -> torch.Tensor:
    try:
        return x[x[0].long()]
    except IndexError:
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
        return torch.linalg.cholesky(x[:2, :2]) + x[x[0].long() * 0]
    except (TypeError, NotImplementedError):
        return x


def not_caught_by_size(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + x[7]
    except IndexError:
        return x + x[0]
