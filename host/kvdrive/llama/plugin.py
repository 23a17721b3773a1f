"""The plugin in this process: its drive, its sentences and its counters (`host/llama_cpp/process.hpp`)."""

from __future__ import annotations

import atexit
import ctypes
import json
from collections.abc import Mapping
from ctypes import CFUNCTYPE, c_char_p, c_size_t, c_uint32
from pathlib import Path
from typing import Any

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.llama.environment import variables
from kvdrive.llama.functions import INSTALL, Functions

INTERFACE = 1  # of process.hpp
_HEAR = CFUNCTYPE(None, c_char_p)


class Plugin:
    """The plugin, which has opened the drive that `settings` name: variables of docs/guide/llama-cpp.md.

    A process has one, with one drive. Raises TargetError, UnsupportedError.
    """

    _is_open = False

    def __init__(self, functions: Functions, path: Path, settings: Mapping[str, str]) -> None:
        if Plugin._is_open:
            raise UnsupportedError("llama.cpp has a drive in this process already: start another process")
        self._sentences: list[str] = []
        self._library = _library(path)
        self._heard = _HEAR(lambda text: self._sentences.append(text.decode(errors="replace")))
        self._listen(self._heard)
        atexit.register(self._listen, _HEAR(0))  # it keeps the callback, and takes it away before the interpreter ends
        Plugin._is_open = True
        with variables(settings):
            loaded = functions.ggml_backend_load(str(path).encode())
        if not loaded:
            raise UnsupportedError(self.reason(f"llama.cpp does not load {path}"))
        if self.statistics() is None:
            raise TargetError(self.reason("the drive for K and V was not opened"))

    def reason(self, otherwise: str) -> str:
        """The sentences since the last call as one, or `otherwise`."""
        said, self._sentences[:] = list(dict.fromkeys(self._sentences)), []
        return "; ".join(said) or otherwise

    def statistics(self) -> dict[str, Any] | None:
        """All counters since the drive was opened; None if there is no drive."""
        size = self._library.kvdrive_llama_statistics(None, 0)
        if not size:
            return None
        room = size + 256  # numbers may have grown meanwhile
        text = ctypes.create_string_buffer(room)
        self._library.kvdrive_llama_statistics(text, room)
        found: dict[str, Any] = json.loads(text.value)
        return found

    def _listen(self, callback: Any) -> None:
        self._library.kvdrive_llama_hear(callback)


def _library(path: Path) -> Any:
    """The plugin with the functions of its interface. Raises UnsupportedError."""
    try:
        library = ctypes.CDLL(str(path))
        library.kvdrive_llama_interface.restype = c_uint32
        interface = library.kvdrive_llama_interface()
    except (OSError, AttributeError) as error:
        raise UnsupportedError(f"{path} is not the plugin of this kvdrive ({error}): {INSTALL}") from error
    if interface != INTERFACE:
        raise UnsupportedError(f"{path} is the plugin of another kvdrive: {INSTALL}")
    library.kvdrive_llama_hear.argtypes, library.kvdrive_llama_hear.restype = [_HEAR], None
    library.kvdrive_llama_statistics.argtypes = [c_char_p, c_size_t]
    library.kvdrive_llama_statistics.restype = c_size_t
    return library
