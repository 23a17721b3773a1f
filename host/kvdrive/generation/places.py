"""The place of a checkpoint on this machine, from the name or path that the user gave."""

from __future__ import annotations

import re
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.generation import gemma
from kvdrive.tree import ROOT

SHIPPED = ("mini", "mini_relu")  # folders of models/ in the source tree
SMOLLM2 = "smollm2"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def find(name: str) -> Path:
    """The checkpoint `name`: a folder with config.json, or a GGUF file. Raises InputError when there is none.

    `name`: a shipped model, "smollm2", "gemma3-270m", or a path.
    """
    if name == gemma.NAME:
        return gemma.gguf_file()
    if name == SMOLLM2:
        from kvdrive.generation import gguf  # imports transformers

        return gguf.smollm2_folder()
    shipped = ROOT / "models" / name
    path = shipped if name in SHIPPED else Path(name).expanduser()
    if (path / "config.json").is_file() or (path.suffix == ".gguf" and path.is_file()):
        return path
    if name in SHIPPED:
        raise InputError(f"the model '{name}' lies in the source tree, which is not here: take mini, or give a folder")
    if _HUB_NAME.fullmatch(name) and not path.exists() and path.suffix != ".gguf":
        folder = path.name
        raise InputError(
            f"'{name}' is no folder here, and kvdrive downloads nothing: "
            f"get it with `hf download {name} --local-dir {folder}`, then give `model={folder}`"
        )
    raise InputError(
        f"no checkpoint in '{name}': give a Hugging Face folder (config.json, *.safetensors, a tokenizer), "
        "a .gguf file, 'mini', 'smollm2' or 'gemma3-270m'"
    )
