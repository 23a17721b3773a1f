"""Small random mixtures of experts, as checkpoints on disk."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Glm4MoeConfig,
    GptOssConfig,
    MiniMaxM2Config,
    MixtralConfig,
    OlmoeConfig,
    PreTrainedTokenizerFast,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

_SIZE = {
    "vocab_size": 257,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 256,
}
_HEAD = {"head_dim": 32}
CONFIGS = {
    "mixtral": MixtralConfig(**_SIZE, **_HEAD, intermediate_size=96, num_local_experts=8),
    "qwen3-moe": Qwen3MoeConfig(
        **_SIZE, **_HEAD, intermediate_size=96, moe_intermediate_size=48, num_experts=16, num_experts_per_tok=4
    ),
    "olmoe": OlmoeConfig(**_SIZE, intermediate_size=48, num_experts=16, num_experts_per_tok=4),
    "gpt-oss": GptOssConfig(
        **_SIZE,
        **_HEAD,
        intermediate_size=48,
        num_local_experts=8,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default"},
        layer_types=["full_attention"] * 3,
    ),
    "qwen2-moe": Qwen2MoeConfig(  # has a shared expert, which is resident
        **_SIZE,
        intermediate_size=96,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=48,
        num_experts=8,
        num_experts_per_tok=2,
    ),
    "glm4-moe": Glm4MoeConfig(  # its first layer is dense; biases in float32 choose its experts
        **_SIZE,
        **_HEAD,
        intermediate_size=96,
        moe_intermediate_size=48,
        n_routed_experts=16,
        num_experts_per_tok=4,
    ),
    "minimax-m2": MiniMaxM2Config(  # its routers need more than the hidden states
        **_SIZE, **_HEAD, intermediate_size=48, num_local_experts=8, num_experts_per_tok=2
    ),
}

# 156 MiB in float32, almost all of it experts. Not one of CONFIGS: most tests have no use for it.
BIG = MixtralConfig(**_SIZE | {"hidden_size": 256}, intermediate_size=1024, num_local_experts=17)


def save(name, folder, dtype=torch.float32, seed=1, shard="5GB"):
    """A checkpoint of CONFIGS whose tokens are bytes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(BIG if name == "big" else CONFIGS[name]).to(dtype)
        for module in model.modules():
            if "Router" in type(module).__name__ and hasattr(module, "e_score_correction_bias"):
                module.e_score_correction_bias = 30 + torch.rand(len(module.e_score_correction_bias))  # float32
        model.save_pretrained(folder, max_shard_size=shard)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    return folder


def in_memory(folder, dtype=torch.float32):
    """The checkpoint as transformers loads it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
