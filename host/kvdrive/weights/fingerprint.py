"""Two hashes that tell if a file of weights was made from a checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from kvdrive.identity.parts import counting, of_parts

_SAMPLES = 256
_SAMPLE_BYTES = 4096


def of_config(config: Any) -> str:
    """SHA-256 of what a configuration says about the model, in hexadecimal. The formats of weights are elsewhere."""
    fields = {name: value for name, value in counting(config).items() if name != "quantization_config"}
    return of_parts(fields).hex()


def of_source(path: Path) -> str:
    """SHA-256 of the names, sizes and 256 samples of 4 KiB of each weight file; "" where there is none.

    Reads a few megabytes even of a checkpoint of hundreds of gigabytes. `path`: a checkpoint folder or a GGUF file.
    """
    digest = hashlib.sha256()
    files = weight_files(path)
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as data:
            for sample in range(_SAMPLES):
                data.seek(sample * max(0, size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                digest.update(data.read(_SAMPLE_BYTES))
    return digest.hexdigest() if files else ""


def weight_files(path: Path) -> list[Path]:
    """The files with the weights of a checkpoint folder, or the GGUF file itself."""
    return [path] if path.is_file() else sorted(path.glob("*.safetensors"))
