"""What llama.cpp logs: its errors are kept for our own sentences, the rest is dropped."""

from __future__ import annotations

import atexit
from typing import Any

from kvdrive.llama.functions import LOG_CALLBACK, Functions

_ERROR = 4  # ggml_log_level


class Log:
    """Hears what the libraries of `functions` log, until the interpreter ends."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._errors: list[str] = []
        self._callback = LOG_CALLBACK(self._hear)
        self._listen(self._callback)
        atexit.register(self._listen, LOG_CALLBACK(0))  # it keeps the callback, and takes it away before it ends

    def error(self) -> str:
        """The first error since the last call; "": there was none."""
        errors, self._errors[:] = list(self._errors), []
        return errors[0] if errors else ""

    def _listen(self, callback: Any) -> None:
        self._functions.ggml_log_set(callback, None)
        self._functions.llama_log_set(callback, None)

    def _hear(self, level: int, text: bytes, data: Any) -> None:
        if level == _ERROR and (line := text.decode(errors="replace").strip()):
            self._errors.append(line.partition(": ")[2] or line)  # without the name of the function
