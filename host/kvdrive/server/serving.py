"""A server of one model, from its options to the end of the process."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from kvdrive.errors import InputError
from kvdrive.server.app import application
from kvdrive.server.connections import BACKLOG, GuardedProtocol, Patience, places
from kvdrive.server.engine import Runtime
from kvdrive.server.jobs import Limits
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.settings import Allowed, Settings

_SHUTDOWN_SECONDS = 5  # how long a stopping server waits for open streams
_TURNS = 16  # contexts that a conversation may have in all, if old tokens are removed


@dataclass(frozen=True)
class Serving:
    """`address`: host and port, 0: a free one. `limits`: without tokens, there is room for as many contexts as run.

    `name`: the model's for clients, "": that of its folder. `prompt_tokens`: of the longest prompt, 0: as many as fit.
    """

    address: tuple[str, int]
    limits: Limits
    name: str = ""
    prompt_tokens: int = 0
    allowed: Allowed = field(default_factory=Allowed)


def run(runtime: Runtime, how: Serving) -> None:
    """Serve until a signal comes. Raises InputError, UnsupportedError, TargetError."""
    listening = bind(*how.address)
    app, settings = opened(runtime, how)
    print(f"serving {settings.name} at {base_of(how.address, listening)}", flush=True)
    serve(app, listening)


def opened(runtime: Runtime, how: Serving) -> tuple[Starlette, Settings]:
    """The application, with the engine open. Raises InputError, UnsupportedError, TargetError."""
    limits, longest = _limits(runtime, how.limits)
    metrics = Metrics()
    scheduler = Scheduler(runtime.engine(limits), limits, metrics, runtime.drafts)
    scheduler.start()
    settings = Settings(how.name or runtime.name, how.prompt_tokens or longest - 1, longest, how.allowed)
    return application(runtime.model, scheduler, metrics, settings), settings


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Answer clients until a signal comes."""
    server = uvicorn.Config(
        app,
        http=partial(GuardedProtocol, Patience(places())),  # type: ignore[arg-type]
        ws="none",
        backlog=BACKLOG,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    uvicorn.Server(server).run(sockets=[listening])


def base_of(address: tuple[str, int], listening: socket.socket) -> str:
    """What clients take as the server's base address."""
    return f"http://{address[0]}:{listening.getsockname()[1]}/v1"


def _limits(runtime: Runtime, given: Limits) -> tuple[Limits, int]:
    """The limits for this model, and the tokens of the longest prompt with its answer. Raises InputError for more
    tokens than the drives have room for.
    """
    context, most = runtime.context, runtime.most_tokens
    if most is not None and given.tokens > most:
        raise InputError(f"the drive has room for {most} tokens, not for `max_tokens={given.tokens}`: ask for less")
    tokens = given.tokens or min(given.running * context, most or given.running * context)
    longest = min(tokens, context)
    if not runtime.trims:
        return replace(given, tokens=tokens), longest
    # tokens that were removed need no room, but they are part of the next prompt
    chunk = min(given.chunk or context, max(1, context // 4))
    return replace(given, tokens=tokens, chunk=chunk, context=context), max(longest, _TURNS * context)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError when the address cannot be bound."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, reuse_port=False)
    except OSError as error:
        raise InputError(f"cannot listen at {host}:{port} ({error.strerror or error}): choose another port") from error
