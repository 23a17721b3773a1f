"""One model of a server of several, in a process of its own: it answers over a socket that only its parent can open.

It reads its `Work` from stdin, says in a line of JSON on stdout that it is ready or why it is not, and ends when stdin
does: when its parent stops it, or is gone however that ended.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from starlette.types import ASGIApp, Receive, Scope, Send

from kvdrive.config.run import RunConfig
from kvdrive.errors import KvdriveError
from kvdrive.llama.choice import takes_llama
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.engine import Runtime
from kvdrive.server.serving import Serving, opened, serve

WAITED = b"x-kvdrive-waited"  # header: seconds since the request came to the parent


@dataclass(frozen=True)
class Work:
    """What a process serves, and at which `place`. `typed`: options of a run that were given, by name."""

    config: RunConfig
    runtime: str
    typed: frozenset[str]
    sessions: SessionOptions
    serving: Serving
    place: Path = Path()


def load(work: Work) -> Runtime:
    """The model. Raises InputError, UnsupportedError, TargetError."""
    if takes_llama(work.runtime, work.config.model.model):
        from kvdrive.llama.runtime import LlamaRuntime

        return LlamaRuntime(work.config, work.typed, work.sessions, work.serving.limits.running)
    from kvdrive.server.transformers_runtime import TransformersRuntime

    return TransformersRuntime(work.config, work.sessions)


def arriving_earlier(app: ASGIApp) -> ASGIApp:
    """`app`, whose requests have come when they came to the parent."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            waited = next((float(value) for name, value in scope["headers"] if name == WAITED), 0.0)
            scope.setdefault("state", {})["arrived"] = time.perf_counter() - waited
        await app(scope, receive, send)

    return call


def _end_with(parent: IO[bytes]) -> None:
    """End this process, its drives closed, when the parent sends nothing more."""
    parent.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _run(work: Work, answer: IO[str]) -> None:
    app, settings = opened(load(work), work.serving)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(work.place))
    listening.listen()
    print(json.dumps({"context": settings.context}), file=answer, flush=True)
    serve(arriving_earlier(app), listening)


def main() -> None:
    """Serve until stdin ends. What libraries print goes to stderr."""
    os.umask(0o077)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = pickle.load(sys.stdin.buffer)  # from the parent alone
    threading.Thread(target=_end_with, args=[sys.stdin.buffer], daemon=True).start()
    try:
        _run(work, answer)
    except (KvdriveError, OSError, MemoryError) as error:
        print(json.dumps({"error": str(error) or "there is too little memory"}), file=answer, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
