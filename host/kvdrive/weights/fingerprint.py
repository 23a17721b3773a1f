"""Two hashes that tell if a file of weights was made from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvdrive.identity.files import of_files
from kvdrive.identity.parts import counting, of_parts


def of_config(config: Any) -> str:
    """SHA-256 of what a configuration says about the model, in hexadecimal. The formats of weights are elsewhere."""
    fields = {name: value for name, value in counting(config).items() if name != "quantization_config"}
    return of_parts(fields).hex()


def of_source(path: Path) -> str:
    """SHA-256 of the names and all bytes of the weight files; "" where there is none.

    `path`: a checkpoint folder or a GGUF file. Files that have not changed since are not read again (`files.of_files`).
    """
    files = weight_files(path)
    return of_files(files) if files else ""


def weight_files(path: Path) -> list[Path]:
    """The files with the weights of a checkpoint folder, or the GGUF file itself."""
    return [path] if path.is_file() else sorted(path.glob("*.safetensors"))
