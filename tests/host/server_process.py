"""`kvdrive serve` as a process of its own, which never outlives the test that started it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress

import forked
import httpx2 as httpx
from fixed_rates import KVDRIVE

PROMPT = "The drive keeps the keys and the values of every token, and the host"


def _kill(process):
    """End a process and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Server:
    """A server process on a free port.

    It and its children are gone when this object is, closed or not.
    """

    def __init__(self, checkpoint, folder, *options, key="", name="tiny", measured=False):
        """`name`: of the model; "": each of several is called as its folder is. `measured`: it measures what pays."""
        environment = os.environ | {"XDG_CACHE_HOME": str(folder), "KVDRIVE_API_KEY": key}
        named = ["--name", name] if name else []
        arguments = ["serve", "--model", checkpoint, *named, "--port", 0, "--threads", 1, *options]
        program = ("-m", "kvdrive") if measured else ("-c", KVDRIVE)
        command = [sys.executable, *program, *map(str, arguments)]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = forked.popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self._said, text=True,
            start_new_session=True, dies_with_parent=True,
        )  # fmt: skip
        self.kill = weakref.finalize(self, _kill, self.process)
        line = self.process.stdout.readline()
        assert line.startswith(f"serving {name}")
        assert " at http://127.0.0.1:" in line
        self.client = httpx.Client(base_url=line.split()[-1].removesuffix("/v1"), timeout=60)

    def complete(self, **fields):
        return self.client.post("/v1/completions", json={"model": "tiny", "temperature": 0, **fields})

    def metric(self, name):
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))

    def wait_for(self, name, value):
        deadline = time.monotonic() + 30
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def said(self):
        """Lines on stderr so far."""
        self._said.seek(0)
        return self._said.read()

    def end(self, number):
        """Send a signal; returns the exit status."""
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self):
        code = self.end(signal.SIGTERM)
        self.process.stdout.close()
        self._said.close()
        return code
