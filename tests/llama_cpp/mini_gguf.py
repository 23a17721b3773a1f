"""The project's model mini as a GGUF file, as llama.cpp's own converter would write it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import load_file

from bench.decode.llama_cpp import BLOCK, writer_of

MINI = Path(__file__).parents[2] / "models" / "mini"


def _rotated_in_pairs(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of Q or K in llama.cpp's order: it rotates neighbours, transformers the two halves of a head."""
    dim = matrix.shape[0] // heads
    return matrix.reshape(heads, 2, dim // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def write(path: Path) -> None:
    """Writes mini without its tokenizer, matrices in binary16."""
    config = json.loads((MINI / "config.json").read_text())
    weights = {name: tensor.to(torch.float32).numpy() for name, tensor in load_file(MINI / "model.safetensors").items()}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    writer = writer_of(SimpleNamespace(**config), path)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])

    def add(name: str, source: str) -> None:
        matrix = weights[source]
        kind = name.rsplit(".", 1)[-1]
        if kind in heads:
            matrix = _rotated_in_pairs(matrix, heads[kind])
        writer.add_tensor(f"{name}.weight", matrix.astype(np.float16) if matrix.ndim > 1 else matrix)

    add("token_embd", "model.embed_tokens.weight")
    add("output_norm", "model.norm.weight")
    for layer in range(config["num_hidden_layers"]):
        for name, source in BLOCK.items():
            add(f"blk.{layer}.{name}", f"model.layers.{layer}.{source}.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
