"""Models for steps whose times do not depend on what a model was trained for."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint, Shape

SEED = 1
LLAMA_426M = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1 << 17,
    "tie_word_embeddings": True,
}


def load(name: str, dtype: str = "float32") -> tuple[PreTrainedModel, Shape]:
    """The shipped model in `dtype`, or the random one in bfloat16. Times do not depend on what a model was trained for,
    so both have positions for every context.
    """
    if name != "426m":
        checkpoint = checkpoints.load(name, dtype)
        checkpoint.model.config.max_position_embeddings = LLAMA_426M["max_position_embeddings"]
        return checkpoint.model, checkpoint.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(LlamaConfig(**LLAMA_426M)).eval()
        torch.set_default_dtype(torch.float32)
    return model, Checkpoint(name, Path(), model, None).shape
