"""A server of one model, from its options to the end of the process."""

from __future__ import annotations

import math
import os
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial

import uvicorn

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.app import application
from kvdrive.server.connections import BACKLOG, GuardedProtocol, Patience, places
from kvdrive.server.jobs import Limits
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.settings import Settings
from kvdrive.server.tenants import Tenants
from kvdrive.targets.opening import open_drives
from kvdrive.waiting import waiting_for
from kvdrive.weights.opening import load_from

_SHUTDOWN_SECONDS = 5  # how long a stopping server waits for open streams
_SPARE = 2  # extra capacity for partly filled pages and collection
_TURNS = 16  # contexts that a conversation may have in all, if old tokens are removed


@dataclass(frozen=True)
class Serving:
    """`address`: host and port, 0: a free one. `limits`: without tokens, there is room for as many contexts as run.

    `name`: the model's for clients, "": that of its folder. `prompt_tokens`: of the longest prompt, 0: as many as fit.
    See `Settings` for the rest.
    """

    address: tuple[str, int]
    tenants: Tenants
    sessions: SessionOptions
    limits: Limits
    name: str = ""
    prompt_tokens: int = 0
    seconds: float = math.inf
    open_metrics: bool = False
    ignore_unknown: bool = False
    origins: tuple[str, ...] = ()


def run(config: RunConfig, how: Serving) -> None:
    """Serve until a signal comes. Raises InputError, TargetError."""
    with waiting_for(f"loading {config.model.model}"):
        checkpoint = load_from(config)
    listening = _bind(*how.address)
    limits, longest = _limits(config, how.limits, checkpoint)
    metrics = Metrics()
    scheduler = _scheduler(config, how, checkpoint, limits, metrics)
    settings = Settings(
        how.name or checkpoint.path.name, how.prompt_tokens or longest - 1, longest, how.tenants, how.open_metrics,
        how.seconds, how.ignore_unknown, how.origins,
    )  # fmt: skip
    server = uvicorn.Config(
        application(checkpoint, scheduler, metrics, settings),
        http=partial(GuardedProtocol, Patience(places())),  # type: ignore[arg-type]
        ws="none",
        backlog=BACKLOG,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    print(f"serving {settings.name} at http://{how.address[0]}:{listening.getsockname()[1]}/v1", flush=True)
    uvicorn.Server(server).run(sockets=[listening])


def _limits(config: RunConfig, given: Limits, checkpoint: Checkpoint) -> tuple[Limits, int]:
    """The limits for this model, and the tokens of the longest prompt with its answer."""
    context = config.limits.context or checkpoint.context
    tokens = given.tokens or given.running * context
    longest = min(tokens, context)
    if config.limits.overflow != "trim":
        return replace(given, tokens=tokens), longest
    # tokens that were removed need no room, but they are part of the next prompt
    chunk = min(given.chunk or context, max(1, context // 4))
    return replace(given, tokens=tokens, chunk=chunk, context=context), max(longest, _TURNS * context)


def _scheduler(config: RunConfig, how: Serving, checkpoint: Checkpoint, limits: Limits, metrics: Metrics) -> Scheduler:
    """Started, with drives that have room for so many tokens."""
    target, threads = config.target, config.target.threads or os.cpu_count() or 1
    needed = _SPARE * limits.tokens * checkpoint.shape.bytes_per_token
    capacity = max(target.capacity_bytes, needed)
    options = replace(
        target, threads=threads, capacity_bytes=capacity, needed_bytes=needed, group=checkpoint.shape.group
    )
    drives = open_drives(options, None if limits.idle else _say)
    scheduler = Scheduler(checkpoint, drives, config, limits, metrics, threads, how.sessions)
    scheduler.start()
    return scheduler


def _say(sentence: str) -> None:
    print(f"kvdrive: {sentence}", file=sys.stderr)


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError when the address cannot be bound."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, reuse_port=False)
    except OSError as error:
        raise InputError(f"cannot listen at {host}:{port} ({error.strerror or error}): choose another port") from error
