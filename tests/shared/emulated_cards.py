# SPDX-License-Identifier: Apache-2.0
"""Programs on emulated cards. Each runs in a session of its own: XRT signals its process group when a card dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from xrt import images

TIMEOUT_S = 120


@dataclass
class Cards:
    """Emulated cards in a folder. `environment`: of programs that use them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def image(self, *tops: str, units: int = 1, platform: str = images.PLATFORM) -> Path:
        path = self.folder / f"{'-'.join(tops)}-{units}.xclbin"
        library = images.kernels_library()
        assert library is not None
        images.write_image(path, list(tops), units, "sw_emu", library.read_bytes(), platform)
        return path

    def run(
        self, *command: str | Path, timeout: float = TIMEOUT_S, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Everything that it started is killed after the timeout."""
        process = subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | self.environment | environment,
            cwd=self.folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(TIMEOUT_S, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        out, err = process.communicate()
        timer.cancel()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def python(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, *arguments, **environment)

    def kvdrive(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "kvdrive", *arguments, **environment)
