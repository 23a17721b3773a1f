"""Servers of llama.cpp's models, each a process of its own on one drive: one follows the other."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from llama_host import LLAMA, PLUGIN
from server_process import Server

from kvdrive.llama import libraries

PLACES = {libraries.FOLDER_VARIABLE: str(LLAMA / "bin"), libraries.PLUGIN_VARIABLE: str(PLUGIN)}


class Servers:
    """Starts servers of a model whose drive is in `folder`. What still runs is stopped before the next one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Server | None = None

    def start(self, model: Path, *options: object) -> Server:
        self.stop()
        place = ("--drive", self._folder / "drives")
        with patch.dict(os.environ, PLACES):
            self._running = Server(model, self._folder, *place, "--prefill-chunk", 256, *options)
        return self._running

    def stop(self) -> None:
        if self._running is not None and self._running.kill.alive:
            self._running.close()
        self._running = None

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
