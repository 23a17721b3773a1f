"""llama.cpp beside kvdrive: a transformers model as a GGUF file, and how long llama-bench takes for a decode step.

Only where `llama-bench` is on PATH and the Python package `gguf` is installed; neither belongs to the set-up.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

NAME = "llama.cpp"
LONGEST = 16384  # tokens; llama-bench fills its cache by a prefill, which takes almost an hour for longer contexts
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find() -> str | None:
    """The program llama-bench; None if it or the package gguf is missing."""
    return shutil.which("llama-bench") if importlib.util.find_spec("gguf") else None


def writer_of(config: Any, path: Path) -> Any:
    """A writer of gguf with what transformers' configuration of a Llama or a Mixtral says, and without a tokenizer."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    return writer


def write_gguf(model: PreTrainedModel, path: Path, kind: str = "BF16") -> None:
    """A Llama without its tokenizer, matrices in the format `kind`, as gguf names it. Speed only: rows of Q and K keep
    transformers' order, in which llama.cpp rotates other pairs of dimensions. Raises ValueError for another kind of
    model.
    """
    import gguf

    config = model.config
    if config.model_type != "llama":
        raise ValueError(f"llama.cpp is compared on Llamas, this is {config.model_type}")
    writer = writer_of(config, path)
    writer.add_key_length(model.model.layers[0].self_attn.head_dim)
    writer.add_value_length(model.model.layers[0].self_attn.head_dim)
    writer.add_rope_dimension_count(model.model.layers[0].self_attn.head_dim)
    weights = model.state_dict()

    def add(name: str, source: str) -> None:
        tensor = weights[source].float()
        matrix = gguf.GGMLQuantizationType[kind]
        if tensor.dim() == 1:
            writer.add_tensor(f"{name}.weight", tensor.numpy())
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(tensor.numpy(), matrix), raw_dtype=matrix)

    add("token_embd", "model.embed_tokens.weight")
    add("output_norm", "model.norm.weight")
    if not config.tie_word_embeddings:
        add("output", "lm_head.weight")
    for layer in range(config.num_hidden_layers):
        for name, source in BLOCK.items():
            add(f"blk.{layer}.{name}", f"model.layers.{layer}.{source}.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def decode_seconds(program: str, file: Path, context: int, rounds: int, threads: int) -> list[float]:
    """Seconds per token after `context` others, `rounds` times. Raises RuntimeError with llama-bench's message."""
    options: dict[str, Any] = {"-m": file, "-p": 0, "-n": 4, "-d": context, "-r": rounds, "-t": threads, "-fa": 1}
    command = [program, *(str(part) for pair in options.items() for part in pair), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"llama-bench failed: {done.stderr.strip()[-2000:]}")
    (result,) = json.loads(done.stdout)
    return [nanoseconds / result["n_gen"] / 1e9 for nanoseconds in result["samples_ns"]]


def measure(
    model: PreTrainedModel, context: int, rounds: int, threads: int, folder: Path, kind: str = "BF16"
) -> list[float]:
    """Seconds of decode steps. Empty if llama.cpp is missing, the context is too long, or the model is no Llama."""
    program = find()
    if program is None or context > LONGEST or model.config.model_type != "llama":
        return []
    file = folder / "model.gguf"
    with torch.no_grad():
        write_gguf(model, file, kind)
    return decode_seconds(program, file, context, rounds, threads)
