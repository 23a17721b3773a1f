"""`kvdrive serve`: the HTTP server."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from kvdrive.choices import TARGETS
from kvdrive.cli.command import Group, command
from kvdrive.cli.fields import Fields, kept_drives
from kvdrive.cli.llama import RuntimeOption, typed
from kvdrive.cli.serve_options import AccessFlags, ModelFlags, SessionFlags, WorkFlags
from kvdrive.cli.served_models import Wanted, serve_models
from kvdrive.config.run import GROUPS, RunConfig
from kvdrive.config.sizes import bytes_of
from kvdrive.waiting import IMPORTS, waiting_for

app = typer.Typer()


def _stopped(given: dict[str, Any]) -> str:
    """What is left of a server that ^C has stopped, from its arguments."""
    target = given["config"].target
    stays = target.folder is not None or target.target not in TARGETS
    kept = ", and the sequences that the server kept" if stays and given["kept"].idle else ""
    return f"{kept_drives(given['config'])}{kept}"


@command(app, shown="serve --model smollm2 --drive drives", kept=_stopped)
def serve(
    running: typer.Context,
    config: Annotated[RunConfig, Fields(*GROUPS, without=("model", "accepted"))],
    models: Annotated[ModelFlags, Group()],
    access: Annotated[AccessFlags, Group()],
    work: Annotated[WorkFlags, Group()],
    kept: Annotated[SessionFlags, Group()],
    runtime: RuntimeOption = "auto",
) -> None:
    """Serve OpenAI's /v1/chat/completions, /v1/completions and /v1/responses, and Anthropic's /v1/messages.

    The KV cache is in drives. Also /v1/models, /health and Prometheus /metrics. Up to --concurrency requests run at the
    same time: one call of the model computes the next token of all of them, and between two such calls a part of one
    prompt is computed.
    """
    sessions, tenants = kept.options(), access.tenants(kept.tenant)
    wanted = Wanted(
        models.model or [config.model.model],
        models.name,
        config,
        runtime,
        typed(running),
        sessions,
        bytes_of(models.models_memory),
        models.model_idle or math.inf,
    )
    wanted.check()
    with waiting_for(IMPORTS):
        limits, allowed = work.limits(kept.idle), work.allowed(access, tenants)
    serve_models(wanted, (access.host, access.port), limits, allowed, work.max_prompt_tokens)
