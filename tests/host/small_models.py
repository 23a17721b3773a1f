"""Small random models of every supported family, and prompts for them."""

import copy

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OPTConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from kvdrive.plugins.transformers import attach

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
SMALL = {
    "vocab_size": 300,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.06,
    **TOKENS,
}
OPT = {
    "vocab_size": 300,
    "hidden_size": 256,
    "ffn_dim": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "word_embed_proj_dim": 256,
    "init_std": 0.06,
    **TOKENS,
}
CONFIGS = {
    "llama": LlamaConfig(**SMALL, num_key_value_heads=2),
    "llama-mha": LlamaConfig(**SMALL, num_key_value_heads=8),
    "qwen2": Qwen2Config(**SMALL, num_key_value_heads=1),
    "qwen3": Qwen3Config(**SMALL, num_key_value_heads=4, head_dim=64),
    "mixtral": MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4),
    "opt": OPTConfig(**OPT),
    "mistral": MistralConfig(**SMALL, num_key_value_heads=4, sliding_window=None),
    "phi3": Phi3Config(**SMALL, num_key_value_heads=4),
}


_MADE = {}


def random_model(config, seed=1):
    """A model with random weights that belongs to the caller: a copy of one that is made once."""
    key = type(config), config.to_json_string(use_diff=False), seed
    if key not in _MADE:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _MADE[key] = AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
    return copy.deepcopy(_MADE[key])


def prompts(rows, tokens, seed=2):
    return torch.randint(2, 300, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def step_logits(model, target, **options):
    """Logits of a prefill of three rows and of 8 decode steps after it, in drives."""
    ids, nexts = prompts(3, 20), prompts(3, 8, seed=3)
    with attach(model, target, **options) as attached, torch.no_grad():
        cache = attached.cache()
        found = [model(ids, past_key_values=cache).logits]
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(8)]
        return torch.cat(found, dim=1)
