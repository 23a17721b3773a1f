"""Which transformers models a drive can serve exactly, and why not the others."""

from __future__ import annotations

import logging
from typing import Any

from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicSlidingWindowLayer, get_layer_types_and_kwargs

from kvdrive import abi
from kvdrive.errors import UnsupportedError

FAMILIES = {
    "opt": "OPT",
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "phi3": "Phi-3",
    "qwen2": "Qwen2 and Qwen2.5",
    "qwen3": "Qwen3",
}
_LAYERS = {"full_attention", "sliding_attention"}
log = logging.getLogger(__name__)


def decoder_config(model: PreTrainedModel) -> Any:
    """The configuration of the model's text decoder."""
    return model.config.get_text_config(decoder=True)


def check_model(model: PreTrainedModel) -> None:
    """Raises UnsupportedError with the model's name and the first reason found."""
    reason = _reason(model)
    if reason:
        raise UnsupportedError(f"{type(model).__name__} cannot be attached to a drive: {reason}")


def layers_in_memory(model: PreTrainedModel) -> dict[int, CacheLayerMixin]:
    """New cache layers, by index, for those with a sliding window: their few tokens are no work for a drive."""
    types, options = get_layer_types_and_kwargs(decoder_config(model))
    return {
        index: DynamicSlidingWindowLayer(**kwargs)
        for index, (kind, kwargs) in enumerate(zip(types, options, strict=True))
        if kind == "sliding_attention"
    }


def report_layers_in_memory(model: PreTrainedModel) -> None:
    """Say so in the log when layers do not go to the drive."""
    count, layers = len(layers_in_memory(model)), decoder_config(model).num_hidden_layers
    if count:
        window = decoder_config(model).sliding_window
        log.warning(
            "%s: %d of %d layers attend to the last %d tokens only: they stay in memory, no drive sees them",
            type(model).__name__,
            count,
            layers,
            window,
        )


def _reason(model: PreTrainedModel) -> str | None:
    config = decoder_config(model)
    if config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    if not model._can_set_attn_implementation():
        return "it does not let transformers choose its attention function"
    if getattr(config, "kv_lora_rank", None):
        return "it keeps a compressed latent instead of K and V"
    if getattr(config, "attn_logit_softcapping", None):
        return "it caps its attention scores"
    other = sorted(set(get_layer_types_and_kwargs(config)[0]) - _LAYERS)
    if other:
        return f"it has layers of type {', '.join(other)}"
    if config.model_type not in FAMILIES:
        return f"its family {config.model_type} is not among those that are tested: {', '.join(FAMILIES.values())}"
    return _shape_reason(config)


def _shape_reason(config: Any) -> str | None:
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if heads % kv_heads or heads // kv_heads not in abi.GROUP_SIZES:
        sizes = ", ".join(map(str, abi.GROUP_SIZES))
        return f"{heads} query heads over {kv_heads} KV heads; the kernels take {sizes} query heads per KV head"
    if head_dim % abi.HEAD_DIM_STEP or not 0 < head_dim <= abi.MAX_HEAD_DIM:
        return f"head dimension {head_dim}; it must be a multiple of {abi.HEAD_DIM_STEP} up to {abi.MAX_HEAD_DIM}"
    return None
