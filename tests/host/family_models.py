"""Small random models of further families: those that are served because of what they compute, and refused ones."""

import transformers
from small_models import SMALL

HALF_SLIDING = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
HALF_LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
NARROW = {"head_dim": 32}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
GEMMA3 = {"query_pre_attn_scalar": 32, "tie_word_embeddings": False}
GPT_OSS = {"num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "default"}}
MAMBA2 = {
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 256,
    "mamba_n_heads": 8,
    "mamba_d_head": 64,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}
LINEAR = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
DELTA_NET = {"shared_expert_intermediate_size": 64, **LINEAR}
LAYER_INPUTS = {"vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 0}


def _config(name, **fields):
    return getattr(transformers, name)(**SMALL | {"num_key_value_heads": 2} | fields)


# Name: configuration, and how many of its two layers go to the drive.
SERVED = {
    "afmoe": (_config("AfmoeConfig", **HALF_SLIDING, **NARROW, **EXPERTS, num_dense_layers=1), 1),
    "apertus": (_config("ApertusConfig"), 2),
    "bamba": (_config("BambaConfig", attn_layer_indices=[1], **MAMBA2), 1),
    "cohere": (_config("CohereConfig"), 2),
    "cohere2": (_config("Cohere2Config", **HALF_SLIDING), 1),
    "cohere2-moe": (_config("Cohere2MoeConfig", **HALF_SLIDING), 1),
    "exaone4": (_config("Exaone4Config", **HALF_SLIDING), 1),
    "falcon3": (_config("LlamaConfig", head_dim=64), 2),
    "gemma": (_config("GemmaConfig", tie_word_embeddings=False, **NARROW), 2),
    "gemma3": (_config("Gemma3TextConfig", **GEMMA3, **NARROW, **HALF_SLIDING), 1),
    "gemma3n": (
        _config(
            "Gemma3nTextConfig",
            **NARROW,
            **HALF_SLIDING,
            **LAYER_INPUTS,
            laurel_rank=8,
            tie_word_embeddings=False,
            activation_sparsity_pattern=[0.0, 0.0],
        ),
        1,
    ),
    "gemma4": (
        _config(
            "Gemma4TextConfig", **NARROW, **HALF_SLIDING, **LAYER_INPUTS, global_head_dim=64, tie_word_embeddings=False
        ),
        1,
    ),
    "glm4": (_config("Glm4Config", **NARROW), 2),
    "gpt-neox": (_config("GPTNeoXConfig"), 2),
    "gpt-oss": (_config("GptOssConfig", **NARROW, **HALF_SLIDING, **GPT_OSS), 1),
    "granite": (_config("GraniteConfig", attention_multiplier=0.1), 2),
    "granite4": (_config("GraniteMoeHybridConfig", **HALF_LINEAR, **MAMBA2), 1),
    "hunyuan": (_config("HunYuanDenseV1Config", **NARROW), 2),
    "jamba": (_config("JambaConfig", num_experts=4, attn_layer_period=2, attn_layer_offset=1), 1),
    "lfm2": (_config("Lfm2Config", layer_types=["conv", "full_attention"]), 1),
    "lfm2-moe": (
        _config("Lfm2MoeConfig", layer_types=["conv", "full_attention"], **EXPERTS, num_dense_layers=1),
        1,
    ),
    "llama4": (
        _config(
            "Llama4TextConfig",
            intermediate_size_mlp=256,
            num_local_experts=4,
            attention_chunk_size=16,
            no_rope_layers=[1, 0],
            **NARROW,
        ),
        1,
    ),
    "ministral": (_config("MinistralConfig", **HALF_SLIDING, **NARROW), 1),
    "nemotron-h": (
        _config(
            "NemotronHConfig",
            layers_block_type=["mamba", "attention"],
            mamba_num_heads=8,
            mamba_head_dim=64,
            ssm_state_size=16,
            n_groups=1,
            chunk_size=16,
        ),
        1,
    ),
    "nemotron": (_config("NemotronConfig"), 2),
    "olmo2": (_config("Olmo2Config"), 2),
    "olmo-hybrid": (_config("OlmoHybridConfig", **HALF_LINEAR, **LINEAR), 1),
    "phi": (_config("PhiConfig"), 2),
    "qwen3-moe": (_config("Qwen3MoeConfig", **EXPERTS, **NARROW), 2),
    "qwen3-next": (_config("Qwen3NextConfig", **EXPERTS, **DELTA_NET, **NARROW, **HALF_LINEAR), 1),
    "qwen3.5": (_config("Qwen3_5TextConfig", **DELTA_NET, **NARROW, **HALF_LINEAR), 1),
    "seed-oss": (_config("SeedOssConfig", **NARROW), 2),
    "smollm3": (_config("SmolLM3Config", no_rope_layers=[1, 0]), 2),
    "stablelm": (_config("StableLmConfig"), 2),
}
# Name: configuration, and what the refusal says.
REFUSED = {
    "bloom": (_config("BloomConfig"), "does not let transformers choose its attention function"),
    "deepseek-v3": (_config("DeepseekV3Config"), "compressed latent"),
    "diffllama": (_config("DiffLlamaConfig"), "a few tokens through it ended in TypeError"),
    "falcon-h1": (_config("FalconH1Config"), "its layers hold K, V and a Mamba state at once, as Falcon-H1's do"),
    "gemma2": (_config("Gemma2Config", **NARROW), "caps its attention scores"),
    "mamba2": (_config("Mamba2Config", num_heads=8, head_dim=64, n_groups=1), "so it needs no drive"),
}
