"""The options of `kvdrive serve` beside those of a run, in groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from kvdrive.choices import PREFILL_CHUNK
from kvdrive.cli.access import Keys, tenants_of
from kvdrive.cli.paths import input_file
from kvdrive.config.option import Needs
from kvdrive.config.sizes import bytes_of
from kvdrive.prefix.eviction import EVICTIONS
from kvdrive.prefix.options import Bounds, SessionOptions

if TYPE_CHECKING:
    from kvdrive.server.jobs import Limits
    from kvdrive.server.settings import Allowed
    from kvdrive.server.tenants import Tenants

    EvictionName: TypeAlias = str
else:
    EvictionName = Literal[tuple(EVICTIONS)]

_KEPT = Needs("`idle` above 0", lambda given: given["idle"] > 0)


@dataclass(frozen=True)
class ModelFlags:
    """Which models, and when they are unloaded."""

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="folder of a Hugging Face checkpoint, a .gguf file, a name (mini, mini_relu, smollm2, gemma3-270m), "
            "or a folder that holds several of them; repeatable. Of several, each is loaded when a request names it. "
            "Default: mini",
        ),
    ] = None
    models_memory: Annotated[
        str,
        typer.Option(
            help="for the weights of all loaded models; K, M, G, T; those that were used least recently are unloaded "
            "for others. 0: as much as the machine has free"
        ),
    ] = "0"
    model_idle: Annotated[
        float, typer.Option(min=0, help="unload a model that nobody has used for so many seconds; 0: never")
    ] = 0
    name: Annotated[
        str, typer.Option(help="name of the only model for clients; default: that of its folder or file")
    ] = ""


@dataclass(frozen=True)
class AccessFlags:
    """Who may ask, and where."""

    host: Annotated[str, typer.Option(help="address; others than this machine's own need a key")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: a free one, which is printed")] = 8000
    key: Annotated[str, typer.Option(envvar="KVDRIVE_API_KEY", help="clients must send it as a bearer token")] = ""
    keys: Annotated[
        Path | None,
        typer.Option(
            callback=input_file,
            help="instead of --key: file with a line TENANT KEY for each key; tenants share no prefix, no session and "
            "no name",
        ),
    ] = None
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics without the key")] = False
    unknown_fields: Annotated[
        Literal["refuse", "warn"],
        typer.Option(
            help="fields and query parameters that are on no list of docs/reference/requests.md are refused, or "
            "logged and ignored. Fields that are known and not supported are refused in any case"
        ),
    ] = "refuse"
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="pages of this origin may ask, such as http://localhost:3000; repeatable"),
    ] = None

    def tenants(self, tenant: str) -> Tenants:
        """Whose the keys are; `tenant`: of the only key. Raises InputError."""
        keys = Keys(self.key, self.keys, tenant)
        return tenants_of(self.host, keys, tuple(self.cors or ()), open_metrics=self.open_metrics)


@dataclass(frozen=True)
class WorkFlags:
    """How much is done at once."""

    max_prompt_tokens: Annotated[int, typer.Option(min=0, help="0: as many as the model has positions")] = 0
    max_tokens: Annotated[
        int, typer.Option(min=0, help="room on the drive for all sequences; 0: --concurrency full ones")
    ] = 0
    queue: Annotated[
        int, typer.Option(min=1, help="requests of a tenant that may wait; more are answered with 429")
    ] = 64
    concurrency: Annotated[int, typer.Option(min=1, help="sequences that generate at the same time")] = 4
    max_batch: Annotated[
        int, typer.Option(min=1, help="sequences that share a decode step; 1: each has a call of the model to itself")
    ] = 16
    prefill_chunk: Annotated[
        int, typer.Option(min=0, help="tokens of a prompt between two decode steps of the others; 0: all")
    ] = PREFILL_CHUNK
    clamp_max_tokens: Annotated[
        bool,
        typer.Option(
            "--clamp-max-tokens",
            help="a request for more tokens than there is room for gets as many as there is, instead of an error",
        ),
    ] = False
    deadline: Annotated[float, typer.Option(min=0, help="seconds after which an answer ends; 0: none")] = 0

    def limits(self, idle: int) -> Limits:
        """`idle`: finished sequences that are kept."""
        from kvdrive.server.jobs import Limits

        return Limits(self.max_tokens, self.queue, self.concurrency, idle, self.max_batch, self.prefill_chunk)

    def allowed(self, access: AccessFlags, tenants: Tenants) -> Allowed:
        """What clients may do."""
        from kvdrive.server.settings import Allowed

        return Allowed(
            tenants,
            access.open_metrics,
            self.deadline or math.inf,
            access.unknown_fields == "warn",
            self.clamp_max_tokens,
            tuple(access.cors or ()),
        )


@dataclass(frozen=True)
class SessionFlags:
    """What is kept of finished sequences."""

    idle: Annotated[
        int, typer.Option(min=0, help="finished sequences kept for the next turn, as far as there is room; 0: none")
    ] = 10_000
    tenant: Annotated[str, typer.Option(help="whose conversations these are; tenants share nothing")] = ""
    session_days: Annotated[
        float, typer.Option(min=0, help="remove what nobody used for so long; 0: keep it"), _KEPT
    ] = 0.0
    session_bytes: Annotated[
        str, typer.Option(help="of K and V that are kept at most; K, M, G, T; 0: no bound"), _KEPT
    ] = "0"
    daily_writes: Annotated[
        str, typer.Option(help="bytes a day; beyond them only what is wanted a second time is kept; 0: no bound"), _KEPT
    ] = "0"
    eviction: Annotated[EvictionName, typer.Option(help="which one is removed when there are too many"), _KEPT] = "lru"

    def options(self) -> SessionOptions:
        """Raises InputError."""
        bounds = Bounds(bytes_of(self.session_bytes), self.idle, self.session_days * 86_400)
        return SessionOptions(None, self.tenant, bounds, self.eviction, bytes_of(self.daily_writes))
