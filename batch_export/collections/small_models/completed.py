"""A model with arguments that no input gives: constants of the program, and special tokens before a text.

A module and constants arrive, a module leaves. No class is known by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class Completed(nn.Module):
    """A model with arguments that no input gives.

    Args:
        model: the model.
        fixed: arguments that are tensors of whole numbers, such as the grid of an image's patches. They are constants
            of the program and not buffers: models compute sizes from them.
        constants: arguments that are passed as they are.
        prefix: ids of special tokens that go before every row of `input_ids`, such as the places of an image.
        along: arguments beside `input_ids` that get a column for each of them, with the value that it has there.
    """

    prefix: torch.Tensor

    def __init__(
        self,
        model: nn.Module,
        fixed: Mapping[str, Any],
        constants: Mapping[str, Any],
        prefix: list[int],
        along: Mapping[str, int],
    ) -> None:
        super().__init__()
        self.model = model
        self.constants = dict(constants)
        self.along = dict(along)
        self.fixed = dict(fixed)
        self.register_buffer("prefix", torch.tensor(prefix, dtype=torch.int64))

    def forward(self, **given: Any) -> Any:
        """Calls the model with what is given and what it was made with."""
        arguments = dict(given)
        ids = arguments.get("input_ids")
        if self.prefix.numel() and ids is not None:
            arguments["input_ids"] = torch.cat([self.prefix.expand(ids.shape[0], -1), ids], 1)
            for name, value in self.along.items():
                there = arguments[name] if name in arguments else torch.zeros_like(ids)
                before = torch.full((*there.shape[:-1], self.prefix.numel()), value, dtype=there.dtype)
                arguments[name] = torch.cat([before, there], -1)
        for name, value in self.fixed.items():
            arguments[name] = torch.tensor(value)
        return self.model(**arguments, **self.constants)
