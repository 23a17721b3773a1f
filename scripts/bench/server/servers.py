"""Servers of one model, each a process of its own on a free port of this machine."""

from __future__ import annotations

import http.client
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.setup import Setup
from kvdrive.errors import InputError
from kvdrive.generation import places
from kvdrive.generation.packages import SMOLLM2_PACKAGE, files_of
from kvdrive.llama import libraries
from kvdrive.tree import ROOT

NAME = "measured"  # of the model, for clients
MOST_USERS = 8
CONTEXT = 2048  # tokens of a user's sequence
_START_SECONDS = 300


@dataclass(frozen=True)
class Models:
    """The same weights twice: `folder` for transformers, in float32; `file` for llama.cpp, as quantised, or None."""

    name: str
    folder: Path
    file: Path | None

    @classmethod
    def here(cls) -> Models:
        """SmolLM2 where its package is installed, elsewhere the shipped model, which is in no GGUF file."""
        files = files_of(SMOLLM2_PACKAGE, "*.gguf")
        name = places.SMOLLM2 if files else "mini"
        return cls(name, places.find(name), files[0] if files else None)


@dataclass(frozen=True)
class Program:
    """How a server is started: a command, but for its port. `model`: what requests call its model.

    `beside`: the server with the same weights and runtime that it is compared with.
    """

    name: str
    command: Sequence[str | Path]
    model: str = NAME
    beside: str = ""


@dataclass(frozen=True)
class Running:
    """A server that listens. `pid`: of its process."""

    port: int
    model: str
    pid: int

    def get(self, path: str) -> str:
        """The body of a path. Raises OSError where nothing listens, InputError for a refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise InputError(f"{path} was answered with {answer.status}: {text[:500]}")
        return text


OURS, OURS_LLAMA = "kvdrive serve, transformers", "kvdrive serve, llama.cpp"
LLAMA, TRANSFORMERS = "llama-server", "transformers serve"


def ours(models: Models, folder: Path, setup: Setup) -> list[Program]:
    """This project's server with each runtime that is here; its drives are in `folder`."""
    start = [sys.executable, "-m", "kvdrive", "serve", "--name", NAME, "--threads", str(setup.threads)]
    start += ["--concurrency", str(MOST_USERS), "--context", str(CONTEXT)]
    found = []
    if models.file and libraries.are_there():
        drive = ["--model", models.file, "--runtime", "llama.cpp", "--drive", folder / "llama"]
        found.append(Program(OURS_LLAMA, [*start, *drive], beside=LLAMA))
    drive = ["--model", models.folder, "--dtype", "float32", "--target", "cpu", "--drive", folder / "transformers"]
    return [*found, Program(OURS, [*start, *drive], beside=TRANSFORMERS)]


def others(models: Models, setup: Setup) -> list[Program]:
    """The servers of the runtimes themselves, as far as they are here."""
    found = []
    program = shutil.which(LLAMA) or ROOT / "build" / "llama-server" / "bin" / LLAMA
    if models.file and Path(program).exists():
        sizes = ["-np", str(MOST_USERS), "-c", str(MOST_USERS * CONTEXT), "-t", str(setup.threads)]
        found.append(Program(LLAMA, [program, "-m", models.file, *sizes], beside=LLAMA))
    if importlib.util.find_spec("fastapi"):
        threads = f"OMP_NUM_THREADS={setup.threads}"  # it has no option for them
        command = ["env", threads, sys.executable, "-m", "transformers.cli.transformers", "serve", models.folder]
        options = ["--device", "cpu", "--dtype", "float32", "--log-level", "error"]
        found.append(Program(TRANSFORMERS, [*command, *options], str(models.folder), TRANSFORMERS))
    return found


@contextmanager
def running(program: Program) -> Iterator[Running]:
    """Start a server, and end it. Raises InputError with what it said if it does not start."""
    port = _free_port()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            [*map(str, program.command), "--port", str(port)], stdout=said, stderr=said, env=environment
        )
        try:
            found = Running(port, program.model, process.pid)
            if not _answers(found, process):
                said.seek(0)
                raise InputError(f"{program.name} did not start: {said.read()[-2000:]}")
            yield found
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(server: Running, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a server is ready; False if it has ended, or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.get("/health")
        except (OSError, InputError):
            time.sleep(0.1)
        else:
            return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
