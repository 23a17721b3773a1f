"""Checks if a drive can serve a model, from the model's configuration. `plugins.probe` checks the model itself."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from transformers import PreTrainedModel
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, CacheLayerMixin, get_layer_types_and_kwargs

from kvdrive import abi
from kvdrive.errors import InputError, UnsupportedError

ON_DRIVES = "full_attention"
IN_MEMORY = {  # layers whose cache does not grow with the context; they keep transformers' own
    "sliding_attention": "attend to the last {window} tokens only",
    "chunked_attention": "attend to a chunk of the tokens only",
    "linear_attention": "keep a state of fixed size",
    "conv": "keep the last few tokens' states",
    "dummy": "keep nothing of their own",
}
BOTH = "hybrid"  # attention and Mamba side by side in each layer
log = logging.getLogger(__name__)


def decoder_config(model: PreTrainedModel) -> Any:
    """The configuration of the model's text decoder."""
    return model.config.get_text_config(decoder=True)


def layer_types(config: Any) -> list[str]:
    """The type of each layer in a decoder's configuration, in transformers' terms."""
    types: list[str] = get_layer_types_and_kwargs(config)[0]
    return types


def check_model(model: PreTrainedModel) -> None:
    """Raises UnsupportedError with the model's name and the first reason found, if a drive cannot serve the model."""
    if not isinstance(model, PreTrainedModel):
        raise InputError(
            f"attach takes a transformers model, not a {type(model).__name__}: load one with "
            "AutoModelForCausalLM.from_pretrained"
        )
    name = type(model).__name__
    if not model.can_generate():
        raise UnsupportedError(
            f"{name} generates no text, since it has no head of a language model: attach one that was loaded with "
            "AutoModelForCausalLM"
        )
    if model.training and getattr(model, "is_activation_checkpointing", False):
        raise UnsupportedError(
            f"gradient checkpointing computes the layers of {name} without a cache: call model.eval()"
        )
    reason = None
    if not model._can_set_attn_implementation():
        reason = "it does not let transformers choose its attention function"
    reason = reason or config_reason(decoder_config(model))
    if reason:
        raise refusal(model, reason)


def refusal(model: PreTrainedModel, reason: object) -> UnsupportedError:
    """The error that says why a drive cannot serve `model`, and what to do instead."""
    name = type(model).__name__
    return UnsupportedError(f"{name} cannot be attached to a drive: {reason}; run it with transformers alone")


def layers_in_memory(model: PreTrainedModel) -> dict[int, CacheLayerMixin]:
    """New cache layers, by index, for the layers that stay in memory: their cache does not grow with the context."""
    types, options = get_layer_types_and_kwargs(decoder_config(model))
    return {
        index: DYNAMIC_LAYER_TYPE_MAPPING[kind](**kwargs)
        for index, (kind, kwargs) in enumerate(zip(types, options, strict=True))
        if kind != ON_DRIVES
    }


def report_layers_in_memory(model: PreTrainedModel) -> None:
    """Log which layers stay in memory, if any do."""
    config = decoder_config(model)
    types = layer_types(config)
    for kind, count in Counter(types).items():
        if kind != ON_DRIVES:
            what = IN_MEMORY[kind].format(window=getattr(config, "sliding_window", None))
            log.warning(
                "%s: %d of %d layers %s: they stay in memory, no drive sees them",
                type(model).__name__,
                count,
                len(types),
                what,
            )
    if ON_DRIVES not in types:
        log.warning("%s needs no drive: its cache does not grow with the context", type(model).__name__)


def config_reason(config: Any) -> str | None:
    """The reason why a decoder with this configuration cannot be served; None if the configuration allows it."""
    if config.is_encoder_decoder:
        return "it is an encoder-decoder model; kvdrive serves decoders"
    if getattr(config, "kv_lora_rank", None):
        return "it keeps a compressed latent instead of K and V; that is small, so memory is the place for it"
    if getattr(config, "attn_logit_softcapping", None):
        return "it caps its attention scores, which no drive computes"
    if getattr(config, "alibi", False):
        return "it adds a bias to its attention scores, which no drive computes"
    types = layer_types(config)
    if BOTH in types:
        return (
            "its layers hold K, V and a Mamba state at once, as Falcon-H1's do, and a drive's layer holds K and V only"
        )
    other = sorted(set(types) - {ON_DRIVES, *IN_MEMORY})
    if other:
        return f"it has layers of type {', '.join(other)}, whose cache only transformers knows"
    if set(types) <= {"linear_attention", "conv", "dummy"}:
        return "it has no attention layers, so it needs no drive"
    return shape_reason(*heads_of(config)) if ON_DRIVES in types else None


def heads_of(config: Any) -> tuple[int, int, int]:
    """Query heads, KV heads and head dimension as the configuration has them, of the layers that go to drives."""
    config = _of_drive_layers(config)
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads, kv_heads, head_dim


def _of_drive_layers(config: Any) -> Any:
    """The configuration of the layers that go to drives, where it has other numbers for others."""
    try:
        return config.per_layer_config[ON_DRIVES]
    except (AttributeError, KeyError, ValueError):
        return config


def group_of(config: Any) -> int:
    """Query heads per KV head; 0 without attention."""
    if not hasattr(config, "num_attention_heads"):
        return 0
    heads, kv_heads, _ = heads_of(config)
    return heads // kv_heads


def shape_reason(heads: int, kv_heads: int, head_dim: int) -> str | None:
    """The reason why attention of this shape cannot be served; None if it can."""
    if heads % kv_heads or heads // kv_heads not in abi.COMMAND_GROUPS:
        return (
            f"{heads} query heads over {kv_heads} KV heads; a command takes 1 to 16 query heads per KV head, and "
            f"multiples of 8 up to {abi.MAX_COMMAND_GROUP}"
        )
    if head_dim % abi.COMMAND_HEAD_DIM_STEP or not 0 < head_dim <= abi.MAX_HEAD_DIM:
        return (
            f"head dimension {head_dim}; it must be a multiple of {abi.COMMAND_HEAD_DIM_STEP} up to {abi.MAX_HEAD_DIM}"
        )
    return None
