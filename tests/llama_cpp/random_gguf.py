"""Models with random weights, for kinds of attention that mini does not have."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from mini_gguf import add_tokenizer

VOCABULARY, HIDDEN, FFN, HEAD_DIM = 2048, 64, 128, 32
WINDOW = 64


def write_gemma(path: Path, family: str, layers: int = 6, heads: int = 2, *, texts: bool = False) -> None:
    """Writes a gemma2, with soft caps and every second layer in a window, or a gemma3, with five of six in one.

    `texts`: with mini's tokenizer, whose text ends with the token 0.
    """
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, family)
    writer.add_vocab_size(VOCABULARY)
    if texts:
        add_tokenizer(writer, 0)
    else:
        writer.add_tokenizer_model("none")
    writer.add_context_length(8192)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(WINDOW)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(5.0)
        writer.add_final_logit_softcapping(30.0)

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
        else:
            scale = 3 / shape[-1] ** 0.5
            writer.add_tensor(f"{name}.weight", (scale * random.standard_normal(shape)).astype(np.float16))

    add("token_embd", VOCABULARY, HIDDEN)
    add("output_norm", HIDDEN)
    for layer in range(layers):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            add(block + norm, HIDDEN)
        if family == "gemma3":
            add(block + "attn_q_norm", HEAD_DIM)
            add(block + "attn_k_norm", HEAD_DIM)
        add(block + "attn_q", heads * HEAD_DIM, HIDDEN)
        add(block + "attn_k", HEAD_DIM, HIDDEN)
        add(block + "attn_v", HEAD_DIM, HIDDEN)
        add(block + "attn_output", HIDDEN, heads * HEAD_DIM)
        add(block + "ffn_gate", FFN, HIDDEN)
        add(block + "ffn_up", FFN, HIDDEN)
        add(block + "ffn_down", HIDDEN, FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
