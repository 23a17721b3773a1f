"""Memory: what the weights of a model take, and what the machine has."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from kvdrive.errors import InputError

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}  # of a weight in memory, by `dtype`
_MOST_HEADER = 100 << 20


def weight_bytes(path: Path, dtype: str, *, as_stored: bool) -> int:
    """Memory for the weights of a checkpoint's folder or GGUF file: as they are stored, or as `dtype` has them
    (choices.DTYPES). Raises InputError, OSError.
    """
    files = _parts(path) if path.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError(f"{path} holds no *.safetensors: convert its weights (save_pretrained writes them)")
    if as_stored or (dtype == "auto" and path.is_dir()):
        return sum(one.stat().st_size for one in files)
    count: Callable[[Path], int] = _gguf_values if path.is_file() else _safetensors_values
    return _BYTES.get(dtype, 4) * sum(map(count, files))


def _parts(path: Path) -> list[Path]:
    """A GGUF file, and the others of the same model."""
    head, middle, _ = path.name.partition("-00001-of-")
    return sorted(path.parent.glob(f"{head}-*-of-*.gguf")) if middle else [path]


def _safetensors_values(path: Path) -> int:
    """Numbers in a file, by its header. Raises InputError for a file that has none."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= _MOST_HEADER else {}
        return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no safetensors file: its header cannot be read") from error


def _gguf_values(path: Path) -> int:
    """Numbers in a file. Raises InputError."""
    from kvdrive.generation.gguf import require_package

    require_package(path)
    from gguf import GGUFReader

    try:
        return sum(int(one.n_elements) for one in GGUFReader(path).tensors)
    except Exception as error:  # a damaged file raises any kind of error
        raise InputError(f"{path} is no GGUF file that can be read: {error}") from error


def free_bytes() -> float:
    """Memory of this machine that processes may take; infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return math.inf if found is None else int(found) * 1024
