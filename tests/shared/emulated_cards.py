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

import pytest

from kvdrive import _native
from xrt import card, images
from xrt.prefix import RuntimeMissing, system_libraries

TIMEOUT_S = 120


def set_up_cards(folder: Path, **options: object) -> Cards:
    """Cards in `folder` with the given options (xrt.card.CardOptions). Skips where XRT cannot be used."""
    try:
        system_libraries()
        if not Path(_native.__file__).with_name("libkvdrive_xrt.so").exists():
            pytest.skip("the native extension was built before XRT was installed: make setup")
        return Cards(folder, card.set_up(folder, card.CardOptions(**options)))  # type: ignore[arg-type]
    except RuntimeMissing as error:
        pytest.skip(str(error))


@dataclass
class Cards:
    """Emulated cards in a folder. `environment`: of programs that use them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def image(self, *tops: str, units: int = 1, platform: str = images.PLATFORM) -> Path:
        path = self.folder / f"{'-'.join(tops)}-{units}.xclbin"
        mode = self.environment["XCL_EMULATION_MODE"]
        images.write_image(path, list(tops), units, mode, platform)
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
        timer = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        out, err = process.communicate()
        timer.cancel()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def python(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, *arguments, **environment)

    def kvdrive(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "kvdrive", *arguments, **environment)
