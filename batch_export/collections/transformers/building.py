"""The builder of the models that the transformers collection describes: a config's arguments in, a seeded module out.

Parameters that initialisation left constant (all zeros, all ones) are spread, so that a file which forgets one is seen;
running statistics too. Nothing is downloaded, and no class is known by its name.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

SPREAD = 0.1


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


def build(
    architecture: str,
    model_type: str,
    config: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    prefix: list[int] | None = None,
    along: Mapping[str, int] | None = None,
) -> nn.Module:
    """Builds a model of transformers from the arguments of its config.

    Args:
        architecture: name of the class, such as `BertForMaskedLM`.
        model_type: the key of transformers' mappings, such as `bert`.
        config: arguments of the config class; nested configs are mappings.
        fixed: see `Completed`.
        constants: see `Completed`.
        prefix: see `Completed`.
        along: see `Completed`.

    Returns:
        The module in eval mode.
    """
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    made = config_of(model_type, config or {})
    model: nn.Module = getattr(transformers, architecture)(made).eval()
    spread(model)
    if fixed or constants or prefix:
        return Completed(model, fixed or {}, constants or {}, prefix or [], along or {}).eval()
    return model


def config_of(model_type: str, arguments: Mapping[str, Any]) -> Any:
    """The config of a type with these arguments; caches are off, in the configs within it too."""
    transformers = importlib.import_module("transformers")
    made = transformers.CONFIG_MAPPING[model_type](**_as_written(transformers, model_type, arguments))
    todo = [made]
    while todo:
        config = todo.pop()
        if hasattr(config, "use_cache"):
            config.use_cache = False
        todo += [value for name, value in vars(config).items() if name[:1] != "_" and hasattr(value, "model_type")]
    return made


def _as_written(transformers: Any, model_type: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples where the class has tuples, which JSON does not tell apart."""
    try:
        default = vars(transformers.CONFIG_MAPPING[model_type]())
    except Exception:  # a class that needs arguments
        return dict(arguments)
    written = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, list) and isinstance(default.get(name), tuple):
            written[name] = _tuples(value)
        elif isinstance(value, Mapping) and value.get("model_type") in transformers.CONFIG_MAPPING:
            written[name] = _as_written(transformers, value["model_type"], value)
    return written


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def spread(model: nn.Module) -> None:
    """Adds small numbers, the same ones for the same names, to parameters and statistics that are constant."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            statistic = name.endswith(("running_mean", "running_var"))
            learnt = isinstance(tensor, nn.Parameter)
            if not tensor.is_floating_point() or not tensor.numel() or not (learnt or statistic):
                continue
            if bool((tensor == tensor.reshape(-1)[0]).all()):
                generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                noise = torch.rand(tensor.shape, generator=generator) - 0.5
                tensor.add_((noise * 2 * SPREAD).to(tensor.dtype))
