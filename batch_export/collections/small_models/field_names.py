"""What a field of a config is, read from its name: a width, a count of heads, a vocabulary, a window, ...

Patterns, and no values: `shrinking.py` says what becomes of each kind of field.
"""

from __future__ import annotations

import re

INTERVAL = re.compile(r"(interval|period|frequency|sparse_step|every_n(_layers)?|_pattern|layer_freq)$")
OFFSET = re.compile(r"_offset$")
HEAD_COUNT = re.compile(r"(^|_)(num_|n_)?(attention_)?heads?$|^n_heads?$|_heads$")
KEY_HEADS = re.compile(r"(key_value|kv|key)_heads$|n_head_kv")
STATE_HEADS = re.compile(r"^(mamba|ssm|ssd)_(n|num)_heads$")
FILTERS = re.compile(r"^(n|num)_filters$")
GROUPS = re.compile(r"(^|_)num_groups$|^n_groups$|norm_groups$")
HEAD_DIM = re.compile(r"(head_dim|head_size|d_kv|d_head|head_width|kv_channels|rotary_dim|rotary_ndims)$")
WIDTH = re.compile(
    r"(hidden|embed|embd|embedding|embeddings|intermediate|ffn|projection|proj|projector|model|mlp|channels?|inner|"
    r"latent|lora|fusion|output|expert|shared|stem|neck|adapter|codevector|visual|text|vision|audio|encoder|decoder|"
    r"qformer|dense|bottleneck|mask|feature|backbone|per_layer|per_layer_input|lru|attention|moe|tdnn|conv|tokens?|base)"
    r"_?(hidden)?_?(size|sizes|dim|dims|width|channels|rank)(_per_layer_input|_per_stage)?$"
    r"|^(dim|d_model|d_ff|d_inner|n_embd|n_inner|d_embed|embed_dim|emb_dim|d_latents|d_hidden|lru_width|qk_dim|embed_dims|channels|mlp_dim"
    r"|output_channels|(\w+_)?out_channels|hidden_sizes|conv_dim|attention_dim)$|hidden_size_per_layer_input$"
)
NOT_WIDTH = re.compile(
    r"vocab|kernel|window|patch|image|chunk|block(?!_out_channels$)|stride|position|codebook_size|token_id|group|bucket"
)
RANK = re.compile(r"_lora_rank$|^(q|kv|o)_rank$|lora_dim$")
EXPERT_COUNT = re.compile(
    r"^(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts|.*_num_experts)$"
)
CHOSEN = re.compile(
    r"(experts?_per_tok(en)?|moe_top_?k|expert_top_?k|top_k_experts|experts_top_k|moe_k|router_topk|top_k)$"
)
VOCABULARY = re.compile(
    r"vocab_size|vocabulary_size|vocab_sizes|^vocab$|^n_words$|_vocab$|vocab_size_per_layer_input$|codebook_size$|^num_embeddings$"
)
SMALL_VOCABULARY = re.compile(r"^type_vocab|type_vocab_size")
POSITIONS = re.compile(
    r"position_embeddings$|positions$|^n_ctx$|seq_len(gth)?$|sequence_length$|context_length$|max_length$"
)
SLIDING = re.compile(r"^(sliding_window(_size)?|local_attention|attention_chunk_size|attention_window)$")
QUERIES = re.compile(r"^(num_queries|num_object_queries|num_query|two_stage_num_proposals|topk_queries)$")
IDENTITY = re.compile(
    r"(token|tok)_(id|ids|index)$|_token_ids?$|(^|_)(pad|bos|eos|sep|cls|mask|boi|eoi|unk|blank)_(idx|index|id)$"
)
TURNED = re.compile(r"rope_(axes_)?(dim|dims)$|(rope|rotary)_axes|^axes_dims?(_rope)?$|dims?_rope$")
CONSTANT = re.compile(r"num_labels|chunk_size_feed_forward")
