"""Two hashes that tell if a file of weights was made from a checkpoint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_SAMPLES = 256
_SAMPLE_BYTES = 4096
_NOT_IN_THE_MODEL = (
    "_name_or_path",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "quantization_config",
)


def of_config(config: Any) -> str:
    """SHA-256 of what a configuration says about the model, in hexadecimal."""
    fields = {name: value for name, value in config.to_dict().items() if name not in _NOT_IN_THE_MODEL}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()


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
