"""torch.nn's transformer layers without gradients: by their fast paths they give something else than the file.

Arrives: a model and its example inputs. Leaves: a warning where it has such layers and the two differ, as they do at
places that a padding mask leaves out.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping

import torch
from torch.utils import _pytree as pytree

from batch_export.calling.fast_paths import without_fast_paths
from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone
from batch_export.exporter.capture.same_numbers import seed_all
from batch_export.exporter.capture.trial import difference, is_fake

_LAYERS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)


def warn_of_fast_paths(model: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Warns where eager gives something else for the example by fast paths than without them.

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
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors, of which the path is made, are a prototype
            fast = _results(model, args, kwargs)
            with without_fast_paths():
                slow, again = (_results(model, args, kwargs) for _ in range(2))
    except Exception:  # of which others tell
        return
    problem = difference(slow, fast) if not difference(slow, again) else ""
    if problem:
        warnings.warn(
            f"without gradients torch's fast path of {type(layers[0]).__name__} gives something else than the file, "
            f"which has what the layers compute with gradients ({problem}): places that a padding mask leaves out "
            "are zeros there. Next step: mask what the layers give before it is used",
            ExportWarning,
            stacklevel=users_level(),
        )


def _results(model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
    """What the model gives, without any mode, of which each would switch the fast path off."""
    given, keywords = copy.deepcopy((args, dict(kwargs)))
    with run_undone(model), settings_kept():
        seed_all()
        found = pytree.tree_leaves(model(*given, **keywords))
        return [one.detach().clone() for one in found if isinstance(one, torch.Tensor)]
