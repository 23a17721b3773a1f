"""The models of the check: three families with random weights, made on the device, and the shipped one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GemmaConfig, LlamaConfig, PreTrainedConfig, Qwen3Config

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint

SEED = 1
SHIPPED = "mini"
INPUTS = "llama-mha"  # as many KV heads as query heads: X of a token is half of its K and V
_FAMILIES: dict[str, type[PreTrainedConfig]] = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma": GemmaConfig}
_SHAPES: dict[str, dict[str, int]] = {  # query heads, KV heads and head dimension as in models of about 1e9 weights
    "llama": {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192},
    "qwen3": {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144},
    "gemma": {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384},
}
_LARGE = {"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 16, "max_position_embeddings": 1 << 16}
_SMALL = {"vocab_size": 300, "hidden_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 1 << 16}
_SMALL_SHAPE = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256}
FAMILIES = tuple(_FAMILIES)
_MANY_HEADS = {
    False: {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 64, "intermediate_size": 8192},
    True: {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 32, "intermediate_size": 256},
}


def load(name: str, dtype: torch.dtype, device: torch.device, small: bool, layers: int = 0) -> Checkpoint:
    """A family by name with random weights, or the shipped model. A checkpoint of a family has no tokenizer.

    `layers`: how many a family has; 0: as its size says.
    """
    if name == SHIPPED:
        return checkpoints.load(name, str(dtype).removeprefix("torch."), str(device))
    sizes = _sizes(name, small) | ({"num_hidden_layers": layers} if layers else {})
    config = _FAMILIES.get(name, LlamaConfig)(**sizes, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    before = torch.get_default_dtype()
    torch.manual_seed(SEED)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config).eval()
    finally:
        torch.set_default_dtype(before)
    tokenizer: Any = None
    return Checkpoint(name, Path(), model, tokenizer)


def _sizes(name: str, small: bool) -> dict[str, int]:
    if name == INPUTS:
        return (_SMALL if small else _LARGE) | _MANY_HEADS[small]
    return _SMALL | _SMALL_SHAPE if small else _LARGE | _SHAPES[name]
