"""Which of the two runtimes computes a model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from kvdrive.errors import InputError
from kvdrive.generation import gemma
from kvdrive.generation.packages import SMOLLM2_PACKAGE, files_of
from kvdrive.generation.places import SMOLLM2
from kvdrive.llama import libraries

Runtime = Literal["auto", "llama.cpp", "transformers"]
RUNTIMES: tuple[str, ...] = get_args(Runtime)
LLAMA = "llama.cpp"
_SUFFIX = ".gguf"


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
    """The GGUF file of a model: a path, or a name whose packages have one. Raises InputError."""
    if model == gemma.NAME:
        return gemma.gguf_file()
    if model == SMOLLM2:
        if files := files_of(SMOLLM2_PACKAGE, f"*{_SUFFIX}"):
            return files[0]
        raise InputError("the model 'smollm2' is in a package that is not installed: run `make get WHAT=smollm2`")
    path = Path(model).expanduser()
    if path.suffix != _SUFFIX:
        raise InputError(f"llama.cpp reads {_SUFFIX} files, and '{model}' is none: take `runtime=transformers` for it")
    if not path.is_file():
        raise InputError(f"there is no file {path}: give a {_SUFFIX} file")
    return path
