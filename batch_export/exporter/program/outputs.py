"""What a program gives when it is called: the model's own outputs, and beside them what forward changed.

Arrives: every output of the file, and which of them stand for changed buffers and inputs. Leaves: a tuple of the
others, as long as what the model returns, that knows the changed ones by name. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils import _pytree as pytree


class Outputs(tuple[torch.Tensor, ...]):
    """The outputs of the model, in order: a tuple, as torch's own programs give.

    Attributes:
        mutated: the new contents of buffers and inputs that forward changes, by their names in the module (`pos`, not
            `pos_mutated`): `program.apply_weights(outputs.mutated)` is the next step of a model that keeps a state.
    """

    mutated: dict[str, torch.Tensor]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor], kinds: Sequence[tuple[str, str]]) -> Outputs:
        """Sorts all outputs of a file by kind and target; without kinds all of them are the model's own.

        Args:
            tensors: every output of the file, in order.
            kinds: of each its kind (`USER_OUTPUT`, `BUFFER_MUTATION`, ...) and the name of what it is the content of.
        """
        told = kinds if len(kinds) == len(tensors) else [("USER_OUTPUT", "")] * len(tensors)
        found = cls(tensor for tensor, (kind, _) in zip(tensors, told, strict=True) if not kind.endswith("_MUTATION"))
        found.mutated = {
            target: tensor for tensor, (kind, target) in zip(tensors, told, strict=True) if kind.endswith("_MUTATION")
        }
        return found


pytree.register_pytree_node(
    Outputs,
    lambda outputs: (list(outputs), None),
    lambda leaves, _: tuple(leaves),
    serialized_type_name=f"{Outputs.__module__}.{Outputs.__qualname__}",
    flatten_with_keys_fn=lambda outputs: ([(pytree.SequenceKey(at), one) for at, one in enumerate(outputs)], None),
)
