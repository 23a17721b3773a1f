"""Starts and stops the processes of models."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from kvdrive.server.router.models import LoadError
from kvdrive.server.router.worker import Work

_COMMAND = [sys.executable, "-m", "kvdrive.server.router.worker"]
_PATIENCE = 60  # seconds until a process that was asked to end is killed


class ModelProcess:
    """A process that serves a model at the socket `place`. `context`: tokens of a prompt with its answer at most."""

    def __init__(self, process: Process, place: Path, context: int) -> None:
        self._process = process
        self.place, self.context = place, context

    @classmethod
    async def started(cls, work: Work) -> ModelProcess:
        """A process that is ready. Raises LoadError, and ends the process when it is cancelled."""
        work.place.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(pickle.dumps(work))
            with suppress(ConnectionError):  # it has ended: its line, or none, says why
                await process.stdin.drain()
            line = await process.stdout.readline()
            said = json.loads(line) if line.endswith(b"\n") else {}
            if "context" in said:
                return cls(process, work.place, said["context"])
            status = await process.wait()
            raise LoadError(said.get("error") or _ended(status))
        except asyncio.CancelledError:
            process.kill()
            raise

    @property
    def ended(self) -> bool:
        """True if the process is gone."""
        return self._process.returncode is not None

    async def stop(self) -> None:
        """End the process: its sequences are saved, and its drives are closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _PATIENCE)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _ended(status: int) -> str:
    if status == -9:
        return "its process was killed, as the system does where memory is short: free some, or take a smaller model"
    return f"its process ended with status {status}: the log of this server says more"
