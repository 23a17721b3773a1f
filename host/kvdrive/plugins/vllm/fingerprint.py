"""Which engine computed a block: weights, precision and how the block's bytes lie."""

from __future__ import annotations

import hashlib
import secrets
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.identity import harmless
from kvdrive.identity.files import of_files
from kvdrive.identity.parts import of_parts

_LAYOUT = "kvdrive vllm blocks 2"  # change this text when the bytes of a block change
_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def weights_digest(folder: Path, threads: int, blocks: Path | None = None) -> str:
    """SHA-256 of the files in `folder`, without `harmless.FILES`: their names and contents.

    `blocks`: where blocks are stored. Raises InputError.
    """
    if blocks is not None and blocks.resolve().parent == folder.resolve():
        raise InputError(f"{blocks} is in the folder of the model, of which every file counts: choose another folder")
    files = sorted(filter(_counts, folder.iterdir())) if folder.is_dir() else []
    if not any(path.suffix in _WEIGHTS for path in files):
        raise InputError(
            f"the weights of '{folder}' are not in a folder of that name: name the folder as the model, or give "
            "'model_fingerprint', a text that you change whenever the weights change"
        )
    return of_files(files, threads)


def _counts(path: Path) -> bool:
    return path.is_file() and not any(fnmatchcase(path.name, pattern) for pattern in harmless.FILES)


def fingerprint(parts: dict[str, Any]) -> bytes:
    """32 bytes that stand for `parts`: everything that K and V and their layout depend on."""
    return of_parts({"blocks": _LAYOUT, **parts})


def require_no_adapters(lora: object, named: str) -> None:
    """Raises UnsupportedError for an engine with adapters, of which vLLM's keys have the names only.

    `named`: the text that the user gave for the model, who then changes it with the adapters.
    """
    if lora is not None and not named:
        raise UnsupportedError(
            "blocks of an engine with LoRA adapters are distinguished by the adapters' names only: give "
            "'model_fingerprint', a text that you change whenever an adapter of the same name does"
        )


def of_changed_weights() -> bytes:
    """32 bytes that no other engine has: for weights that have changed since they were read from their files."""
    return secrets.token_bytes(32)


def block_key(fingerprint: bytes, key: bytes) -> bytes:
    """The key in the store of a block that vLLM calls `key`: 32 bytes."""
    return hashlib.blake2b(key, key=fingerprint, digest_size=32).digest()
