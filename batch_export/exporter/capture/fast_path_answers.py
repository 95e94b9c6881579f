"""torch.nn's transformer layers without gradients: by their fast paths they give something else than the file.

Arrives: a model and its example inputs. Leaves: a warning where it has such layers and the two differ, as they do at
places that a padding mask leaves out. An example often leaves out none, so that it is tried with some left out, too.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.utils import _pytree as pytree

from batch_export.calling.fast_paths import without_fast_paths
from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.same_numbers import seed_all
from batch_export.exporter.capture.trial import difference, is_fake

_Change = Callable[[torch.Tensor], torch.Tensor | None]
_LAYERS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)


def warn_of_fast_paths(model: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Warns where eager gives something else by fast paths than without them, for the example or with padding in it.

    Args:
        model: what was exported; a scripted one and a program are not run.
        args: positional example inputs.
        kwargs: keyword example inputs.
    """
    if not torch.backends.mha.get_fastpath_enabled() or type(model) is torch.export.ExportedProgram:
        return
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return
    layers = [one for one in model.modules() if isinstance(one, _LAYERS) and not one.training]
    if not layers or is_fake(model, args, kwargs):
        return
    found = ((words, _problem(model, *inputs)) for words, inputs in _padded(args, kwargs))
    words, problem = next((one for one in found if one[1]), ("", ""))
    if problem:
        warnings.warn(
            f"without gradients torch's fast path of {type(layers[0]).__name__} gives something else than the file, "
            f"which has what the layers compute with gradients ({words}{problem}): places that a padding mask leaves "
            "out are zeros there. Next step: mask what the layers give before it is used",
            ExportWarning,
            stacklevel=users_level(),
        )


def _problem(model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """How what the model gives by fast paths differs from what it gives without them; empty where it does not."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors, of which the path is made, are a prototype
            fast = _results(model, args, kwargs)
            with without_fast_paths():
                slow, again = (_results(model, args, kwargs) for _ in range(2))
    except Exception:  # of which others tell
        return ""
    return difference(slow, fast) if not difference(slow, again) else ""


def _padded(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Iterator[tuple[str, Inputs]]:
    """The example, and the same with places left out by what may be masks, by zeros among whole numbers, by lengths."""
    given = (args, dict(kwargs))
    yield "", given
    for words, change in (("in a mask", _of_mask), ("by zeros", _of_numbers), ("by lengths", _of_lengths)):
        changed = [0]

        def left_out(one: torch.Tensor, change: _Change = change, changed: list[int] = changed) -> torch.Tensor:
            made = change(one)
            changed[0] += made is not None
            return one if made is None else made

        made: Inputs = pytree.tree_map_only(torch.Tensor, left_out, given)
        if changed[0]:
            yield f"with places left out {words}: ", made


def _of_mask(mask: torch.Tensor) -> torch.Tensor | None:
    """A mask `[B, N]` with the later half of all rows but the first one left out, or of the only one."""
    is_added = mask.is_floating_point() and bool(((mask == 0) | (mask == -torch.inf)).all())
    if mask.dim() != 2 or not mask.numel() or not (mask.dtype == torch.bool or is_added):
        return None
    first = mask[0, 0]
    other = ~first if mask.dtype == torch.bool else torch.where(first == 0, -torch.inf, 0.0).to(mask.dtype)
    return _with_ends(torch.full_like(mask, first.item()), other)


def _of_numbers(numbers: torch.Tensor) -> torch.Tensor | None:
    """Whole numbers `[B, N]`, tokens or a mask of ones, with zeros in the same places."""
    if numbers.dim() != 2 or not numbers.numel() or not _is_whole(numbers):
        return None
    return _with_ends(numbers.clone(), torch.zeros((), dtype=numbers.dtype))


def _of_lengths(lengths: torch.Tensor) -> torch.Tensor | None:
    """Lengths `[B]`, all but the first one half as long."""
    if lengths.dim() != 1 or not lengths.numel() or not _is_whole(lengths):
        return None
    made = lengths.clone()
    made[-max(1, len(made) - 1) :] = (made[-max(1, len(made) - 1) :] // 2).clamp(min=1)
    return made


def _with_ends(made: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    made[-max(1, made.shape[0] - 1) :, max(1, made.shape[1] // 2) :] = value
    return made


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def _results(model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
    """What the model gives, without any mode, of which each would switch the fast path off."""
    given, keywords = copy.deepcopy((args, dict(kwargs)))
    with run_undone(model), settings_kept():
        seed_all()
        found = pytree.tree_leaves(model(*given, **keywords))
        return [one.detach().clone() for one in found if isinstance(one, torch.Tensor)]
