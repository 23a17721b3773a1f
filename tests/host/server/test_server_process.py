"""No server of a test outlives it, however the test ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
import server_process
from server_process import Server

SCRIPT = """
import sys, os, signal
sys.path[:0] = sys.argv[1].split(os.pathsep)
from server_process import Server
server = Server(sys.argv[2], sys.argv[3])
print(server.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def gone(number):
    """True when a process has ended, within seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":  # whoever adopted it has not looked yet
            return True
        time.sleep(0.05)
    return False


def test_a_server_that_nobody_closes_ends(checkpoint, tmp_path):
    server = Server(checkpoint, tmp_path)
    number = server.process.pid
    assert os.getpgid(number) == number
    server.process.stdout.close()
    server.client.close()
    del server
    assert gone(number)


@pytest.mark.slow
def test_a_server_ends_with_a_test_that_is_killed(checkpoint, tmp_path):
    folders = os.pathsep.join(str(Path(file).parent) for file in (server_process.__file__, forked.__file__))
    command = [sys.executable, "-c", SCRIPT, folders, str(checkpoint), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert gone(int(done.stdout))
