"""Checkpoints on this machine: find them by name and load them with their tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import gguf, places
from kvdrive.generation.matrices import round_matrices
from kvdrive.plugins.support import ON_DRIVES, decoder_config, heads_of, layer_types

if TYPE_CHECKING:
    from kvdrive.weights.drive_model import DriveModel
    from kvdrive.weights.loading import FlashWeights
    from kvdrive.weights.sparse import SparseWeights
    from kvdrive.weights.stream.model import StreamedWeights

ROUNDED = "int8"


@dataclass(frozen=True)
class Shape:
    """The numbers that give the size of a KV cache. `drive_layers`: how many of the `layers` have K and V on drives."""

    layers: int
    drive_layers: int
    query_heads: int
    kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.query_heads // self.kv_heads

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token in binary16, over all layers on drives."""
        return 2 * self.drive_layers * self.kv_heads * self.head_dim * 2


def shape_of(config: Any) -> Shape:
    """The shape of a decoder with this configuration."""
    types = layer_types(config)
    return Shape(len(types), types.count(ON_DRIVES), *heads_of(config))


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer. `name`: what the user called it.

    `weights`: what reads the weights that stay on flash; None for weights in memory.
    """

    name: str
    path: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    weights: FlashWeights | SparseWeights | DriveModel | StreamedWeights | None = None

    def close(self) -> None:
        """End the reads of weights on flash. Whoever has loaded the checkpoint calls this."""
        if self.weights is not None:
            self.weights.close()

    @property
    def shape(self) -> Shape:
        """Layers, heads and head dimension of the decoder."""
        return shape_of(decoder_config(self.model))

    @property
    def bytes_per_token(self) -> int:
        """See Shape."""
        return self.shape.bytes_per_token

    @property
    def context(self) -> int:
        """The most tokens that a prompt and its continuation may have together."""
        return int(decoder_config(self.model).max_position_embeddings)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a text; empty where the model has none."""
        ids = self.model.generation_config.eos_token_id
        return frozenset([ids] if isinstance(ids, int) else ids or [])

    @property
    def vocabulary(self) -> int:
        """The length of logits: it may be more than the tokenizer has tokens."""
        return int(self.model.get_input_embeddings().num_embeddings)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers of a prompt, with the tokenizer's `special` tokens. Raises InputError for no tokens."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        if not ids:
            raise InputError("the prompt is empty: give it some text")
        return ids

    def check_length(self, prompt_tokens: int, new_tokens: int, context: int = 0) -> None:
        """Raises InputError when the text needs more than `context` tokens; 0: than the model has positions."""
        if prompt_tokens + new_tokens > (context or self.context):
            raise InputError(
                f"{prompt_tokens} prompt tokens and {new_tokens} new ones exceed the {context or self.context} "
                f"positions of {self.name}: shorten the prompt (`prompt_tokens`), generate less, or let old tokens "
                "leave (`overflow=trim`)"
            )


def load(name: str, dtype: str = "float32", device: str = "cpu") -> Checkpoint:
    """Read a checkpoint from disk; nothing is downloaded and no code of the checkpoint runs.

    `dtype` is one of choices.DTYPES; "auto" keeps what is stored (of GGUF files: float32), "int8" is bfloat16 with
    matrices rounded to 8 bits (`matrices.py`). `device` computes the model, as torch names it. Raises InputError.
    """
    quiet()
    where = device_named(device)
    path = places.find(name)
    read = _read_gguf if path.is_file() else _read_folder
    model, tokenizer = read(path, "bfloat16" if dtype == ROUNDED else dtype)
    if dtype == ROUNDED and not round_matrices(model):
        raise InputError(f"{name} has no matrices that can be rounded to 8 bits: take `dtype=bfloat16`")
    try:
        model = model.eval().to(where)
    except RuntimeError as error:
        raise InputError(f"the model does not go to the device {device}: {_first_line(error)}") from error
    return Checkpoint(name, path, model, tokenizer)


def quiet() -> None:
    """transformers prints errors only, and no progress of its own."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def read_config(path: Path) -> Any:
    """The configuration of a checkpoint folder or GGUF file. Raises InputError."""
    try:
        config = AutoConfig.from_pretrained(trust_remote_code=False, **_place(path))
    except Exception as error:  # damaged files raise any kind of error, from three libraries
        raise InputError(f"transformers cannot read the configuration of {path}: {_first_line(error)}") from error
    if _quantises_kv_only(config):
        del config.quantization_config
    return config


def _quantises_kv_only(config: Any) -> bool:
    """True if a checkpoint's weights are plain, and its quantisation is scales of K and V (kvcache.shipped_scales).

    transformers would ask for the package compressed-tensors, which has nothing to do then.
    """
    found = getattr(config, "quantization_config", None)
    return (
        isinstance(found, dict)
        and found.get("quant_method") == "compressed-tensors"
        and bool(found.get("kv_cache_scheme"))
        and not found.get("config_groups")
    )


def read_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint folder or GGUF file. Raises InputError."""
    try:
        return AutoTokenizer.from_pretrained(trust_remote_code=False, **_place(path))
    except Exception as error:
        raise InputError(f"{path} holds no usable tokenizer: {_first_line(error)}") from error


def _place(path: Path) -> dict[str, Any]:
    """What transformers wants to know about the place of a checkpoint; nothing is downloaded."""
    if path.is_file():
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}
    return {"pretrained_model_name_or_path": path, "local_files_only": True}


def _read_folder(path: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if not any(path.glob("*.safetensors")):
        raise InputError(f"{path} holds no *.safetensors: convert its weights (save_pretrained writes them)")
    config = read_config(path)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:  # damaged files raise any kind of error, from three libraries
        raise InputError(f"transformers cannot load {path}: {_first_line(error)}") from error
    return model, read_tokenizer(path)


def _read_gguf(path: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        return gguf.load(path, torch.float32 if dtype == "auto" else getattr(torch, dtype))
    except (InputError, UnsupportedError):
        raise
    except Exception as error:
        raise InputError(f"transformers cannot load {path}: {_first_line(error)}") from error


def device_named(name: str) -> torch.device:
    """The torch device of this name. Raises InputError for devices that torch does not have here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA raises AssertionError
        raise InputError(f"torch has no device '{name}' here ({_first_line(error)}): try cpu") from error
    if device.type == "meta":
        raise InputError("the device 'meta' computes nothing: try cpu")
    return device


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
