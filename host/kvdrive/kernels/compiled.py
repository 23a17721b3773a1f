"""The compiled kernels of engine `hls`, made before they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kvdrive.errors import TargetError
from kvdrive.tree import ROOT

_STANDARD_ERROR = 2


def make_kernels() -> None:
    """Compile all kernels that are missing, with lines of progress on standard error; a minute or two the first time.

    Otherwise a kernel is compiled at its first use, while a remote host waits for its command to end. Does nothing if
    the kernels are shipped, or if KVDRIVE_KERNELS names their folder. Raises TargetError if one cannot be compiled.
    """
    tool = ROOT / "sim/compiled"
    shipped = Path(__file__).resolve().parents[1] / "_kernels"
    if os.environ.get("KVDRIVE_KERNELS") or shipped.is_dir() or not tool.is_dir():
        return
    command = [sys.executable, str(tool), "--all", "--jobs", str(os.cpu_count() or 1)]
    if subprocess.run(command, stdout=_STANDARD_ERROR, check=False).returncode != 0:
        raise TargetError("the kernels of engine hls cannot be compiled: follow the lines above, or use `engine=fast`")
