"""What the K and V of a model depend on, as one number: sessions of another one are never used."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

from kvdrive.config.run import RunConfig
from kvdrive.identity import files
from kvdrive.llama.libraries import Libraries

_KIND = "kvdrive llama.cpp 1"  # change this text when K and V are computed in another way
_PROCESSORS = Path("/proc/cpuinfo")


def label_of(file: Path, libraries: Libraries, config: RunConfig) -> bytes:
    """32 bytes: of all bytes of the model's file, of the libraries and the plugin, of the processor, by which they
    choose their kernels, and of the options that change K and V. Files that were read before, and have not changed
    since, are not read again. Raises OSError.
    """
    options = {
        name: str(value)
        for name, value in config.values().items()
        if name in ("attention", "ratio", "unit", "unread", "kv_format")
    }
    content = [
        _KIND,
        files.of_files([file]),
        files.of_files([*sorted(libraries.folder.glob("*.so")), libraries.plugin]),
        platform.machine(),
        _processor(),
        options,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def _processor() -> list[str]:
    """Model and abilities of the first processor, as the kernel names them; empty where it does not."""
    if not _PROCESSORS.is_file():
        return []
    lines = _PROCESSORS.read_text().partition("\n\n")[0].splitlines()
    return [line for line in lines if line.split(":")[0].strip() in ("vendor_id", "cpu family", "model", "flags")]
