"""A process that computes one sequence with llama.cpp and executes commands, each a line of JSON on standard input:

["resume", ids, name], ["extend", ids], ["truncate", count], ["keep", name], ["sessions"], ["counters"], ["fork"],
["die"]; each prints its result as a line of JSON: tokens that were found, the most likely next token, numbers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from kvdrive.config.run import RunConfig
from kvdrive.llama.context import Context
from kvdrive.llama.opening import open_model
from kvdrive.llama.session_store import open_sessions
from kvdrive.llama.sessions import Sessions


def execute(context: Context, sessions: Sessions, name: str, *given: object) -> object:
    plugin = context.model.plugin
    if name == "resume":
        return sessions.resume(*given)
    if name == "extend":
        return int(context.extend(*given).argmax())
    if name == "truncate":
        return context.truncate(*given)
    if name == "keep":
        return sessions.keep(*given)
    if name == "sessions":
        return sorted(plugin.sessions())
    if name == "counters":
        return plugin.statistics()["drive"]
    if name == "fork":
        return plugin.fork(len(context.tokens))
    assert name == "die"
    return os.kill(os.getpid(), signal.SIGKILL)


def main(model: str, folder: str, *options: str) -> None:
    config = RunConfig.of(
        model=model, folder=Path(folder), **dict(one.split("=") for one in options if "context" not in one)
    )
    with open_model(config) as opened, Context(opened, 1024) as context, open_sessions(context, config) as sessions:
        for line in sys.stdin:
            print(json.dumps(execute(context, sessions, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
