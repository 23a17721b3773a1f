"""The project's model mini as a GGUF file, as llama.cpp's own converter would write it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from bench.decode.llama_cpp import BLOCK, writer_of

MINI = Path(__file__).parents[2] / "models" / "mini"


def _rotated_in_pairs(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of Q or K in llama.cpp's order: it rotates neighbours, transformers the two halves of a head."""
    dim = matrix.shape[0] // heads
    return matrix.reshape(heads, 2, dim // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


TEMPLATE = "{% for one in messages %}{{ one.role }}:{{ one.content }}\n{% endfor %}assistant:"


def add_tokenizer(writer: Any, end: int, template: str = TEMPLATE) -> None:
    """Mini's tokenizer, whose text ends with the token `end`, and a chat template."""
    found = json.loads((MINI / "tokenizer.json").read_text())
    special = {one["id"] for one in found["added_tokens"]}
    vocabulary = sorted(found["model"]["vocab"], key=found["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")  # digits one by one, otherwise as GPT-2
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in special else 1 for token in range(len(vocabulary))])
    writer.add_token_merges([" ".join(pair) for pair in found["model"]["merges"]])
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def write(path: Path, end: int | None = None, template: str = TEMPLATE) -> None:
    """Writes mini in float32; `end`: with its tokenizer, for which this token ends a text.

    With matrices in binary16, llama.cpp would round what it multiplies them with, and not alike on all processors.
    """
    config = json.loads((MINI / "config.json").read_text())
    weights = {name: tensor.to(torch.float32).numpy() for name, tensor in load_file(MINI / "model.safetensors").items()}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    writer = writer_of(SimpleNamespace(**config), path)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])

    if end is not None:
        add_tokenizer(writer, end, template)

    def add(name: str, source: str) -> None:
        matrix = weights[source]
        kind = name.rsplit(".", 1)[-1]
        if kind in heads:
            matrix = _rotated_in_pairs(matrix, heads[kind])
        writer.add_tensor(f"{name}.weight", matrix)

    add("token_embd", "model.embed_tokens.weight")
    add("output_norm", "model.norm.weight")
    for layer in range(config["num_hidden_layers"]):
        for name, source in BLOCK.items():
            add(f"blk.{layer}.{name}", f"model.layers.{layer}.{source}.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
