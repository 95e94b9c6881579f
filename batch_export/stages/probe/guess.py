"""Inputs of a model that nobody described, guessed from its weights and tried until one set runs.

A module arrives; leaves at which it ran leave. What is guessed is told as a guess: a model may run at inputs that its
author did not mean.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator

import torch

from batch_export.errors import ModelError
from batch_export.spec import InputSpec
from batch_export.stages.probe.examples import accepted, required
from batch_export.stages.probe.trial import run, schema_of, signature_of

_BATCH, _SEQUENCE, _LENGTH = 2, 16, 64
_SIDES = (64, 224, 32, 28, 128, 256, 299, 96, 384, 512, 16)
_MOST_TRIES = 400
_MOST_EACH = (0, 60, 20, 10, 6)
"""Of one input, by how many inputs there are; of five and more three."""
_WHOLE_NUMBERS = ("ids", "idx", "index", "indices", "token", "label", "position")

Shape = tuple[int, ...]


def guessed(module: torch.nn.Module) -> list[InputSpec]:
    """Leaves at which the module runs.

    Raises:
        ModelError: none of those that were tried; the sentence has the signature and the first error.
    """
    first = ""
    for leaves in itertools.islice(_combined(module), _MOST_TRIES):
        trial = run(module, leaves)
        if trial.ran:
            return leaves
        first = first or f"{_shown(leaves)}: {trial.error}"
    tried = f" The first that was tried, {first}." if first else ""
    raise ModelError(
        f"the inputs of {signature_of(module)} could not be guessed.{tried} "
        "Next step: describe each, such as --input 'x=float32[batch,3,H=64,W=64]'"
    )


def _shown(leaves: list[InputSpec]) -> str:
    words = (f"{leaf.path[0]}={leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
    return " ".join(words)


def _combined(module: torch.nn.Module) -> Iterator[list[InputSpec]]:
    """All combinations, those of likelier inputs first."""
    names = required(module)
    if not names:
        return
    most = _MOST_EACH[len(names)] if len(names) < len(_MOST_EACH) else 3
    plain = _plain_values(module)
    each = [[plain[name]] if name in plain else _candidates(module, name)[:most] for name in names]
    ranks = itertools.product(*(range(len(one)) for one in each))
    for chosen in sorted(itertools.islice(ranks, 20_000), key=sum):
        yield [options[rank] for options, rank in zip(each, chosen, strict=True)]


def _plain_values(module: torch.nn.Module) -> dict[str, InputSpec]:
    """Constants for parameters that are annotated as numbers."""
    values: dict[str, int | float | bool] = {"int": 2, "float": 1.0, "bool": False}
    if isinstance(module, torch.jit.ScriptModule):
        kinds = {one.name: str(one.type) for one in schema_of(module)}
    else:
        kinds = {name: str(kind) for name, kind in inspect.get_annotations(type(module).forward).items()}
        kinds = {name: kind.removeprefix("<class '").removesuffix("'>") for name, kind in kinds.items()}
    return {name: InputSpec((name,), constant=values[kind]) for name, kind in kinds.items() if kind in values}


def _candidates(module: torch.nn.Module, name: str) -> list[InputSpec]:
    whole: list[InputSpec] = []
    real: list[InputSpec] = []
    for part in module.modules():
        for shape, rows in _accepted_by(part):
            one = InputSpec((name,), "int64", shape, 0.0, float(rows)) if rows else InputSpec((name,), "float32", shape)
            (whole if rows else real).append(one)
    embeds_first = bool(whole) and (not real or _first_is_lookup(module))
    real += [InputSpec((name,), "float32", shape) for shape in _shapes_of_parameters(module)]
    sequence = (_BATCH, _SEQUENCE)
    if "mask" in name.lower():
        masks = [InputSpec((name,), dtype, sequence, fill=1.0) for dtype in ("int64", "bool", "float32")]
        return _distinct([*masks, *whole, *real])
    plain = [InputSpec((name,), "float32", shape) for shape in ((2, 3, 64, 64), (2, 1, 28, 28), (2, 8), (2, 16, 8))]
    lookups = [*whole, InputSpec((name,), "int64", sequence, 0.0, 2.0)]
    numbered = embeds_first or any(word in name.lower() for word in _WHOLE_NUMBERS)
    return _distinct([*lookups, *real, *plain] if numbered else [*real, *plain, *lookups])


def _first_is_lookup(module: torch.nn.Module) -> bool:
    for part in module.modules():
        for _, rows in _accepted_by(part):
            return bool(rows)
    return False


def _accepted_by(part: torch.nn.Module) -> Iterator[tuple[Shape, int]]:
    """Shapes that a layer takes, likelier ones first; for lookups with the number of rows."""
    kind = str(getattr(part, "original_name", "") or type(part).__name__)
    weight = getattr(part, "weight", None)
    size = tuple(map(int, weight.shape)) if isinstance(weight, torch.Tensor) else ()
    if kind.startswith("Conv") and len(size) > 2:
        channels = size[0] if "Transpose" in kind else size[1] * int(getattr(part, "groups", 1))
        spatial = len(size) - 2
        sides = (_LENGTH, 1024, 16000) if spatial == 1 else (16, 32) if spatial == 3 else _SIDES
        yield from (((_BATCH, channels, *[side] * spatial), 0) for side in sides)
    elif kind.startswith("Embedding") and len(size) == 2:
        yield (_BATCH, _SEQUENCE), size[0]
        yield (_BATCH,), size[0]
    elif kind in ("LSTM", "GRU", "RNN"):
        inner = getattr(part, "weight_ih_l0", None)
        if isinstance(inner, torch.Tensor):
            yield (_BATCH, _SEQUENCE, int(inner.shape[1])), 0
    elif kind == "MultiheadAttention":
        out = getattr(getattr(part, "out_proj", None), "weight", None)
        if isinstance(out, torch.Tensor):
            yield (_BATCH, _SEQUENCE, int(out.shape[1])), 0
    elif kind.startswith("BatchNorm") and len(size) == 1:
        yield from (((_BATCH, size[0], *rest), 0) for rest in ([], [_LENGTH], [64, 64]))
    elif kind == "GroupNorm" and len(size) == 1:
        yield from (((_BATCH, size[0], *rest), 0) for rest in ([64, 64], [_LENGTH], []))
    elif len(size) == 2:
        yield (_BATCH, size[1]), 0
        yield (_BATCH, _SEQUENCE, size[1]), 0
    elif kind.endswith("Norm") and size:
        yield (_BATCH, *size), 0
        yield (_BATCH, _SEQUENCE, *size), 0


def _shapes_of_parameters(module: torch.nn.Module) -> Iterator[Shape]:
    """Shapes that weights which belong to no layer of torch's may go with."""
    for parameter in itertools.islice(module.parameters(), 4):
        sizes = tuple(map(int, parameter.shape))
        if len(sizes) == 2:
            yield from ((_BATCH, sizes[0]), (_BATCH, sizes[1]))
        elif sizes:
            yield (_BATCH, *sizes)


def of_transformers(module: torch.nn.Module) -> list[InputSpec]:
    """What the main input of a model of transformers is, from its own configuration; nothing for others."""
    config, main = getattr(module, "config", None), getattr(module, "main_input_name", None)
    if config is None or not isinstance(main, str) or isinstance(module, torch.jit.ScriptModule):
        return []

    def setting(*names: str, default: int) -> int:
        for owner in (config, *(getattr(config, part, None) for part in ("vision_config", "text_config", "encoder"))):
            for name in names:
                value = getattr(owner, name, None)
                if isinstance(value, int) and value > 0:
                    return value
        return default

    names = accepted(module)
    rows = float(setting("vocab_size", default=2))
    tokens = InputSpec(("input_ids",), "int64", (_BATCH, _SEQUENCE), 0.0, rows)
    mask = InputSpec(("attention_mask",), "int64", (_BATCH, _SEQUENCE), fill=1.0)
    side, channels = setting("image_size", default=224), setting("num_channels", "in_channels", default=3)
    found = {
        "input_ids": [tokens, mask],
        "pixel_values": [InputSpec(("pixel_values",), "float32", (_BATCH, channels, side, side))],
        "input_values": [InputSpec(("input_values",), "float32", (_BATCH, setting("max_length", default=16000)))],
        "input_features": [_features(setting)],
    }.get(main, [])
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        found.append(InputSpec(("decoder_input_ids",), "int64", (_BATCH, _SEQUENCE // 2), 0.0, rows))
    if main == "pixel_values" and "input_ids" in required(module) + _text_inputs(module, names):
        found = [tokens, *found, mask]
    kept = [leaf for leaf in found if leaf.path[0] in names]
    return sorted(kept, key=lambda leaf: names.index(str(leaf.path[0])))


def _text_inputs(module: torch.nn.Module, names: list[str]) -> list[str]:
    """Models of two kinds of input, such as CLIP, need the tokens although they have a default."""
    return ["input_ids"] if "input_ids" in names and hasattr(getattr(module, "config", None), "text_config") else []


def _features(setting: Callable[..., int]) -> InputSpec:
    bins = setting("num_mel_bins", "feature_size", default=80)
    frames = 2 * setting("max_source_positions", default=500)
    return InputSpec(("input_features",), "float32", (_BATCH, bins, frames))


def _distinct(leaves: list[InputSpec]) -> list[InputSpec]:
    kept: dict[tuple[str, Shape, float | None], InputSpec] = {}
    for leaf in leaves:
        kept.setdefault((leaf.dtype, tuple(int(size) for size in leaf.shape), leaf.high), leaf)
    return list(kept.values())
