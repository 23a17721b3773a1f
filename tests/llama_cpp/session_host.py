"""A process that computes sequences with llama.cpp and executes commands, each a line of JSON on standard input:

["resume", ids, name], ["extend", ids], ["truncate", count], ["keep", name], ["fork"], each with the number of a
sequence behind if it is not 0; ["step", numbers, tokens], ["sessions"], ["counters"], ["die"]. Each prints its result
as a line of JSON: tokens that were found, the most likely next tokens, numbers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from kvdrive.config.run import RunConfig
from kvdrive.errors import KvdriveError
from kvdrive.llama.context import Context
from kvdrive.llama.opening import open_model
from kvdrive.llama.session_store import open_sessions
from kvdrive.llama.sessions import Sessions
from kvdrive.prefix.request import Request

SEQUENCES = 3


class Host:
    """Executes commands by their names."""

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self.context, self.sessions = context, sessions
        self.plugin = context.model.plugin

    def resume(self, ids: list[int], name: str = "", number: int = 0) -> int:
        return self.kept(number).resume(Request(tuple(ids), name))

    def extend(self, ids: list[int], number: int = 0) -> int:
        return int(self.context.sequences[number].extend(ids).argmax())

    def truncate(self, count: int, number: int = 0) -> None:
        self.context.sequences[number].truncate(count)

    def keep(self, name: str, number: int = 0) -> bool:
        return self.kept(number).keep(name) is not None

    def fork(self, number: int = 0) -> int:
        return self.plugin.fork(number, len(self.context.sequences[number].tokens))

    def step(self, numbers: list[int], tokens: list[int]) -> list[int] | str:
        try:
            found = self.context.step([self.context.sequences[number] for number in numbers], [[one] for one in tokens])
        except KvdriveError as error:
            return str(error)
        return found.argmax(-1).tolist()

    def counters(self) -> dict:
        return self.plugin.statistics()["drive"]

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def kept(self, number: int):
        return self.sessions.of(self.context.sequences[number])

    def execute(self, name: str, *given: object) -> object:
        return sorted(self.plugin.sessions()) if name == "sessions" else getattr(self, name)(*given)


def main(model: str, folder: str, *options: str) -> None:
    config = RunConfig.of(model=model, folder=Path(folder), threads=1, **dict(one.split("=") for one in options))
    with (
        open_model(config) as opened,
        Context(opened, 1024, SEQUENCES) as context,
        open_sessions(context, config) as sessions,
    ):
        host = Host(context, sessions)
        for line in sys.stdin:
            print(json.dumps(host.execute(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
