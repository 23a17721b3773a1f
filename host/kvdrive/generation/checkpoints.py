"""Checkpoints on this machine: found by name, loaded with their tokenizer, refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from kvdrive.errors import InputError
from kvdrive.plugins.support import decoder_config

SHIPPED = ("mini", "mini_relu")  # folders of models/ in the source tree
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "auto": "auto"}


@dataclass(frozen=True)
class Shape:
    """What the size of a KV cache depends on."""

    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int

    @property
    def bytes_per_token(self) -> int:
        """K and V of one token in binary16, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer. `name`: what the user called it."""

    name: str
    path: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def shape(self) -> Shape:
        """Layers, heads and head dimension of the decoder."""
        config = decoder_config(self.model)
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return Shape(config.num_hidden_layers, heads, kv_heads, head_dim)

    @property
    def context(self) -> int:
        """Tokens that prompt and continuation may have together."""
        return int(decoder_config(self.model).max_position_embeddings)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a text; empty where the model has none."""
        ids = self.model.generation_config.eos_token_id
        return frozenset([ids] if isinstance(ids, int) else ids or [])

    def encode(self, text: str) -> list[int]:
        """Token numbers of a prompt. Raises InputError for a text without tokens."""
        ids: list[int] = self.tokenizer(text)["input_ids"]
        if not ids:
            raise InputError("the prompt is empty: give it some text")
        return ids

    def check_length(self, prompt_tokens: int, new_tokens: int) -> None:
        """Raises InputError when the model's positions do not suffice."""
        if prompt_tokens + new_tokens > self.context:
            raise InputError(
                f"{prompt_tokens} prompt tokens and {new_tokens} new ones exceed the {self.context} positions of "
                f"{self.name}: shorten the prompt (--prompt-tokens) or generate less"
            )


def folder(name: str) -> Path:
    """The folder of a shipped model or the given path. Raises InputError when there is no checkpoint."""
    shipped = Path(__file__).resolve().parents[3] / "models" / name
    path = shipped if name in SHIPPED else Path(name).expanduser()
    if (path / "config.json").is_file():
        return path
    if name in SHIPPED:
        raise InputError(f"the model '{name}' belongs to the source tree, which is not here: give a folder")
    raise InputError(
        f"no checkpoint in '{name}': give a Hugging Face folder (config.json, *.safetensors, a tokenizer) or 'mini'"
    )


def load(name: str, dtype: str = "float32") -> Checkpoint:
    """Read a checkpoint from disk; nothing is downloaded and no code of the checkpoint runs.

    `dtype` is a key of DTYPES; "auto" keeps what is stored. Raises InputError.
    """
    path = folder(name)
    if not any(path.glob("*.safetensors")):
        raise InputError(f"{path} holds no *.safetensors: convert its weights (save_pretrained writes them)")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path, dtype=DTYPES[dtype], use_safetensors=True, **options
        )
    except Exception as error:  # damaged files show as any kind of error in three libraries
        raise InputError(f"transformers cannot load {path}: {_first_line(error)}") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
    except Exception as error:
        raise InputError(f"{path} holds no usable tokenizer: {_first_line(error)}") from error
    return Checkpoint(name, path, model.eval(), tokenizer)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
