"""`kvdrive serve`: the HTTP server."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kvdrive.choices import PREFILL_CHUNK, TARGETS
from kvdrive.cli.fields import configured
from kvdrive.cli.groups import command
from kvdrive.cli.options import (
    FolderOptions,
    InputTier,
    MemoryTier,
    ModelOptions,
    OverflowOptions,
    PolicyOptions,
    SessionLimits,
    Speculation,
    TargetOptions,
    WeightsTier,
    kept_drives,
)
from kvdrive.cli.paths import input_file
from kvdrive.errors import InputError
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.server.tenants import Tenants

app = typer.Typer()

_SHUTDOWN_SECONDS = 5  # how long a stopping server waits for open streams
_SPARE = 2  # extra capacity for partly filled pages and collection
_TURNS = 16  # contexts that a conversation may have in all, if old tokens leave


def _kept(given: dict[str, Any]) -> str:
    """What a server that ^C has stopped leaves, from its arguments."""
    stays = given["files"].drive is not None or given["where"].target not in TARGETS
    return f"{kept_drives(given)}{', and the sequences that the server kept' if stays and given['idle'] else ''}"


@command(app, kept=_kept)
def serve(
    computed: ModelOptions,
    where: TargetOptions,
    files: FolderOptions,
    how: PolicyOptions,
    tier: MemoryTier,
    full: OverflowOptions,
    inputs: InputTier,
    kept: SessionLimits,
    placed: WeightsTier,
    drafts: Speculation,
    name: Annotated[str, typer.Option(help="name of the model for clients; default: that of its folder")] = "",
    host: Annotated[str, typer.Option(help="address; others than this machine's own need a key")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one, which is printed")] = 8000,
    key: Annotated[str, typer.Option(envvar="KVDRIVE_API_KEY", help="clients must send it as a bearer token")] = "",
    keys: Annotated[
        Path | None,
        typer.Option(
            callback=input_file,
            help="instead of --key: file with a line TENANT KEY for each key; tenants share no prefix, no session and "
            "no name",
        ),
    ] = None,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics without the key")] = False,
    unknown_fields: Annotated[
        Literal["refuse", "warn"],
        typer.Option(
            help="fields and query parameters that are on no list of docs/requests.md are refused, or logged and "
            "ignored. Fields that are known and not supported are refused in any case"
        ),
    ] = "refuse",
    max_prompt_tokens: Annotated[int, typer.Option(min=0, help="0: as many as the model has positions")] = 0,
    max_tokens: Annotated[
        int, typer.Option(min=0, help="room on the drive for all sequences; 0: --concurrency full ones")
    ] = 0,
    queue: Annotated[
        int, typer.Option(min=1, help="requests of a tenant that may wait; more are answered with 429")
    ] = 64,
    concurrency: Annotated[int, typer.Option(min=1, help="sequences that generate at the same time")] = 4,
    max_batch: Annotated[
        int, typer.Option(min=1, help="sequences that share a decode step; 1: each has a call of the model to itself")
    ] = 16,
    prefill_chunk: Annotated[
        int, typer.Option(min=0, help="tokens of a prompt between two decode steps of the others; 0: all")
    ] = PREFILL_CHUNK,
    deadline: Annotated[float, typer.Option(min=0, help="seconds after which an answer ends; 0: none")] = 0,
    idle: Annotated[
        int, typer.Option(min=0, help="finished sequences kept for the next turn, as far as there is room; 0: none")
    ] = 10_000,
) -> None:
    """Serve OpenAI's /v1/completions and /v1/chat/completions with the KV cache in drives.

    Also /v1/models, /health and Prometheus /metrics. Up to --concurrency requests run at the same time: one call of the
    model computes the next token of all of them, and between two such calls a part of one prompt is computed.
    """
    if drafts.assistant:
        raise InputError("serve computes sequences together, without drafts: take generate, chat or batch")
    try:
        import uvicorn
    except ImportError as error:
        raise InputError("serving needs more packages: pip install 'kvdrive[serve]'") from error
    from kvdrive.server.local import own_machine

    tenants = _tenants(key, keys, kept.tenant)
    if not tenants.asks and not own_machine(host):
        raise InputError(f"{host} can be reached from elsewhere: set KVDRIVE_API_KEY (or --key, or --keys) first")
    if open_metrics and not tenants.asks:
        raise InputError("--open-metrics goes with --key or --keys: without a key, all of this machine read /metrics")
    with waiting_for(IMPORTS):
        from kvdrive.server.app import Settings, application
        from kvdrive.server.connections import BACKLOG, GuardedProtocol, Patience, places
        from kvdrive.server.jobs import Limits
        from kvdrive.server.metrics import Metrics
        from kvdrive.server.scheduler import Scheduler
        from kvdrive.targets.opening import open_drives
        from kvdrive.weights.opening import load_from

    config = configured(computed, where, files, how, tier, full, inputs, placed, drafts)
    with waiting_for(f"loading {computed.model}"):
        checkpoint = load_from(config)
    listening = _bind(host, port)
    threads = where.threads or os.cpu_count() or 1
    context = full.context or checkpoint.context
    tokens = max_tokens or concurrency * context
    capacity = _SPARE * tokens * checkpoint.shape.bytes_per_token
    options = replace(
        config.target,
        threads=threads,
        capacity_bytes=max(config.target.capacity_bytes, capacity),
        needed_bytes=capacity,
        group=checkpoint.shape.group,
    )
    opened = open_drives(options, None if idle else lambda sentence: typer.echo(f"kvdrive: {sentence}", err=True))
    longest = min(tokens, context)
    if full.overflow == "trim":  # tokens that left need no room, but they are part of the next prompt
        longest = max(longest, _TURNS * context)
        prefill_chunk = min(prefill_chunk or context, max(1, context // 4))
    metrics = Metrics()
    limits = Limits(tokens, queue, concurrency, idle, max_batch, prefill_chunk, _held(full, context))
    scheduler = Scheduler(checkpoint, opened, config, limits, metrics, threads, kept.options(idle))
    scheduler.start()
    settings = Settings(
        name or checkpoint.path.name,
        max_prompt_tokens or longest - 1,
        longest,
        tenants,
        open_metrics,
        deadline or math.inf,
        ignore_unknown=unknown_fields == "warn",
    )
    server = uvicorn.Config(
        application(checkpoint, scheduler, metrics, settings),
        http=partial(GuardedProtocol, Patience(places())),  # type: ignore[arg-type]
        ws="none",
        backlog=BACKLOG,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    typer.echo(f"serving {settings.name} at http://{host}:{listening.getsockname()[1]}/v1")
    uvicorn.Server(server).run(sockets=[listening])


def _tenants(key: str, keys: Path | None, tenant: str) -> Tenants:
    """Whose the keys are. Raises InputError."""
    from kvdrive.server.tenants import Tenants, read_keys

    if keys is None:
        return Tenants([(key, tenant)] if key else [], tenant)
    if key:
        raise InputError("--key (or KVDRIVE_API_KEY) and --keys exclude each other: write all keys into the file")
    if tenant:
        raise InputError("--tenant is for a server with one key: --keys names the tenant of each key")
    if keys.stat().st_mode & 0o077:
        typer.echo(f"kvdrive: other users of this machine can read {keys}: chmod 600 {keys}", err=True)
    return Tenants(read_keys(keys))


def _held(full: OverflowOptions, context: int) -> int:
    """Tokens of a sequence that are on the drive at once; 0: all of them."""
    return context if full.overflow == "trim" else 0


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError when the address cannot be bound."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, reuse_port=False)
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}:{port} ({error.strerror or error}): choose another --port"
        ) from error
