"""The plugin in this process: its drive, its sentences and its counters (`host/llama_cpp/process.hpp`)."""

from __future__ import annotations

import atexit
import ctypes
import json
from collections.abc import Mapping
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from kvdrive import abi
from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.llama.environment import variables
from kvdrive.llama.functions import INSTALL, Functions
from kvdrive.llama.state import Rows

INTERFACE = 2  # of process.hpp
_HEAR = CFUNCTYPE(None, c_char_p)
_TEXT: tuple[Any, list[Any]] = (c_size_t, [c_char_p, c_size_t])
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hear": (None, [_HEAR]),
    "close": (None, []),
    "statistics": _TEXT,
    "execute": (
        c_int32,
        [c_char_p, c_void_p, c_size_t, c_char_p, c_size_t, POINTER(c_size_t), POINTER(c_uint64)],
    ),
    "sessions": (c_size_t, [POINTER(c_uint32), c_size_t]),
    "failure": _TEXT,
    "rows": _TEXT,
    "fork": (c_uint32, [c_uint32, c_uint32]),
    "release": (c_bool, [c_uint32]),
    "shorten": (c_bool, [c_uint32, c_uint32]),
    "take": (c_bool, [c_uint32, c_uint32, c_uint32]),
    "taken": (c_bool, []),
}  # of process.hpp, without kvdrive_llama_ before the name


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

    def close(self) -> None:
        """Close the drive. There is no context any more, and this process gets no other one."""
        self._listen(_HEAR(0))  # what is said last goes to stderr
        self._library.kvdrive_llama_close()

    def statistics(self) -> dict[str, Any] | None:
        """All counters since the drive was opened; None if there is no drive."""
        text = self._text(self._library.kvdrive_llama_statistics)
        return json.loads(text) if text else None

    # ---- for a process that stores sessions of its own ----

    def execute(self, entry: bytes, data: Any, room: int) -> tuple[int, int, bytes]:
        """Execute a command: its status (-1: the drive does not answer), its result, and what came back."""
        out, returned, result = ctypes.create_string_buffer(max(room, 1)), c_size_t(), c_uint64()
        address, size = (None, 0) if data is None else (data.ctypes.data, data.nbytes)
        status = self._library.kvdrive_llama_execute(
            entry, address, size, out, room, ctypes.byref(returned), ctypes.byref(result)
        )
        return int(status), result.value, out.raw[: returned.value]

    def sessions(self) -> set[int]:
        """Numbers of all sessions of the drive."""
        room = self._library.kvdrive_llama_sessions(None, 0)
        while True:
            numbers = (c_uint32 * max(room, 1))()
            count = self._library.kvdrive_llama_sessions(numbers, room)
            if count <= room:
                return set(numbers[:count])
            room = count

    def failure(self) -> str:
        """Why the latest command with status INTERNAL_ERROR failed; "": nothing is known."""
        return self._text(self._library.kvdrive_llama_failure)

    def rows(self) -> list[Rows]:
        """The rows of a session of the only context. Raises UnsupportedError where its cache cannot be kept."""
        text = self._text(self._library.kvdrive_llama_rows)
        if not text:
            raise UnsupportedError(self.reason("llama.cpp's cache is of a kind that cannot be kept"))
        return [Rows(layer, abi.KvKind(kind), heads, dim) for layer, kind, heads, dim in json.loads(text)]

    def fork(self, sequence: int, tokens: int) -> int:
        """A copy of a sequence's first tokens, removed with the plugin's own sessions unless it is released. Raises
        TargetError.
        """
        number = self._library.kvdrive_llama_fork(sequence, tokens)
        if not number:
            raise TargetError(self.reason("the drive did not copy a sequence"))
        return int(number)

    def release(self, session: int) -> None:
        """A session is the process's own from now on. Raises TargetError."""
        self._require(self._library.kvdrive_llama_release(session), "the drive did not release a session")

    def shorten(self, sequence: int, tokens: int) -> None:
        """llama.cpp has freed the cells of a sequence from `tokens` on; with 0 it may be one of any model. Raises
        TargetError.
        """
        self._require(self._library.kvdrive_llama_shorten(sequence, tokens), "the drive did not forget rows")

    def take(self, sequence: int, session: int, tokens: int) -> None:
        """A sequence goes on with a session of the drive: its cells are restored next. Raises TargetError."""
        self._require(self._library.kvdrive_llama_take(sequence, session, tokens), "the plugin did not take a session")

    def taken(self) -> bool:
        """True if llama.cpp has restored all cells of the session that was taken."""
        return bool(self._library.kvdrive_llama_taken())

    def _require(self, done: bool, otherwise: str) -> None:
        if not done:
            raise TargetError(self.reason(otherwise))

    def _text(self, function: Any) -> str:
        """The text that a function of process.hpp writes."""
        if not (size := function(None, 0)):
            return ""
        room = size + 256  # numbers may have grown meanwhile
        text = ctypes.create_string_buffer(room)
        function(text, room)
        return text.value.decode(errors="replace")

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
    for name, (returned, taken) in _FUNCTIONS.items():
        function = getattr(library, f"kvdrive_llama_{name}")
        function.restype, function.argtypes = returned, taken
    return library
