# SPDX-License-Identifier: Apache-2.0
"""The command `kvdrive` in this process: the same entry point, but no second to start an interpreter.

For tests of what a command says and leaves behind. A test of the process itself (signals, memory, kills) needs one.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock


def kvdrive(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What `kvdrive ARGUMENTS` prints and its exit status. Not for several threads: it swaps standard output."""
    from kvdrive.cli.main import main

    given = ["kvdrive", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    rights = os.umask(0)  # `main` sets its own, for the process
    os.umask(rights)
    try:
        with mock.patch.object(sys, "argv", given), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        os.umask(rights)
    return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())
