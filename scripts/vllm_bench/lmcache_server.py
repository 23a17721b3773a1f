"""LMCache's cache server, which keeps blocks for engines in files: its multi-process mode."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

_START_SECONDS = 120


class LMCacheServer:
    """A server of the environment `environment`, with its files in `folder`; use it in a `with` statement.

    `memory`: GB in front of the files. Keep it below the bytes of a round, so that a round is read from the files.
    """

    def __init__(self, environment: Path, folder: Path, memory: float) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.log = folder.with_suffix(".log")
        disk = {"type": "fs", "base_path": str(folder), "use_odirect": True}
        self._command = [
            environment / "bin" / "python", "-m", "lmcache.v1.multiprocess.server",
            "--host", "127.0.0.1", "--port", str(self.port), "--disable-observability",
            "--supported-transfer-mode", "auto",  # on the processor the engine moves the bytes
            "--l1-size-gb", str(memory), "--eviction-policy", "LRU", "--chunk-size", "128",
            "--l2-adapter", json.dumps(disk),
        ]  # fmt: skip

    def __enter__(self) -> LMCacheServer:
        with self.log.open("w") as log:
            environment = os.environ | {"LMCACHE_TRACK_USAGE": "false"}
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        self.pid = self._process.pid
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise SystemExit(f"LMCache's server did not start:\n{self.log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
