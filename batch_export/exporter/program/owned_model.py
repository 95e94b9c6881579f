"""A model that nobody else may have: then a file is made of it itself, and it is made again once somebody asks for it.

Arrives: a program's model. Leaves: the model, for whoever asks; or, where nobody did yet, the same to be changed, after
which it is known how to make another one. A copy of each node takes longer than to describe them.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.kept_models import KeptModel


class OwnedModel:
    """A model and who has it.

    Args:
        model: of a program.

    Attributes:
        is_handed_out: whether somebody else may have it, and change it or wonder about changes.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model: ir.Model | None = model
        self._kept: KeptModel | None = None
        self._taken: ir.Model | None = None
        self.is_handed_out = True

    def handed_out(self) -> ir.Model:
        """The model, for whoever asks for it."""
        self.is_handed_out = True
        return self.looked_at()

    def looked_at(self) -> ir.Model:
        """The model, for one look."""
        if self._model is None:
            assert self._kept is not None
            self._model, self._kept = self._kept.made(), None
        return self._model

    def taken(self) -> ir.Model | None:
        """The model, to be changed; None where somebody else has it, or where no other one can be made."""
        if self.is_handed_out:
            return None
        model = self.looked_at()
        kept = KeptModel.of(model)
        if kept is None:
            return None
        self._model, self._kept, self._taken = None, kept, model
        return model

    def let_go(self) -> None:
        """Drops what a model that was taken has in memory: its parts live as long as nobody asks for another one."""
        taken, self._taken = self._taken, None
        for value in () if taken is None else taken.graph.initializers.values():
            value.const_value = None
