"""`kvdrive plan`: what a decode step would take on hardware that is not here."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvdrive.cli.sizes import bytes_of
from kvdrive.errors import InputError
from kvdrive.perf.plan import Plan, plan
from kvdrive.perf.shapes import HALF_BYTES, SHAPES, ModelShape
from kvdrive.perf.systems import SYSTEMS
from kvdrive.perf.xcache import FLOP_PER_WEIGHT

app = typer.Typer()


@app.command(name="plan")
def show(
    model: Annotated[
        str, typer.Option(help=f"folder, file or name, or one of the papers' models: {', '.join(SHAPES)}")
    ],
    context: Annotated[str, typer.Option(help="tokens of each sequence, such as 64K")] = "32K",
    batch: Annotated[int, typer.Option(min=1, help="sequences")] = 16,
    drives: Annotated[int, typer.Option(min=1, max=1024, help="drives that share the heads")] = 4,
    hardware: Annotated[str, typer.Option(help=f"one of {', '.join(SYSTEMS)}")] = "a100-smartssd",
    x_cache: Annotated[
        float | None,
        typer.Option("--x-cache", min=0, max=1, help="share of the work that X-cache takes; default: the best"),
    ] = None,
    flop_factor: Annotated[
        float,
        typer.Option(min=0.5, help="FLOP of X-cache for a weight of both projections: two need 4, HILOS prints 2"),
    ] = FLOP_PER_WEIGHT,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Say what a decode step would take, what bounds it, and what to change. Modelled from published rates."""
    if hardware not in SYSTEMS:
        raise InputError(f"there is no hardware '{hardware}': choose one of {', '.join(SYSTEMS)}")
    tokens = bytes_of(context)
    if tokens < 1:
        raise InputError("a context has at least one token")
    found = plan(_shape(model), SYSTEMS[hardware], tokens, batch, drives, x_cache, flop_factor)
    typer.echo(json.dumps(record(found))) if as_json else _print(found)


def _shape(name: str) -> ModelShape:
    if name in SHAPES:
        return SHAPES[name]
    from kvdrive.doctor.model import read_config
    from kvdrive.generation import places

    config = read_config(places.find(name))
    missing = [key for key in ("hidden_size", "intermediate_size", "num_attention_heads") if not hasattr(config, key)]
    if missing:
        raise InputError(f"the configuration of {name} lacks {', '.join(missing)}")
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or 1
    shape = ModelShape(
        name,
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        experts=experts,
        active=getattr(config, "num_experts_per_tok", None) or 1,
        vocabulary=config.vocab_size,
    )
    weights = HALF_BYTES * _parameters(config)
    return min(shape, replace(shape, gated=True), key=lambda guess: abs(guess.weight_bytes - weights))


def _parameters(config: Any) -> int:
    """Elements of the model's weights; none of them is loaded."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(part.numel() for part in model.parameters())


def record(found: Plan) -> dict[str, object]:
    """A plan for JSON. Times in seconds, sizes in bytes."""
    return {
        "model": found.model.name,
        "hardware": found.system.name,
        "source": found.system.source,
        "drive_source": found.system.drive.source,
        "tokens": found.tokens,
        "batch": found.batch,
        "drives": found.drives,
        "label": "modelled",
        "alpha": found.alpha,
        "alpha_reason": found.reason,
        "parts": [asdict(part) for part in found.parts],
        "step_s": found.step,
        "overlapped_s": found.overlapped,
        "tokens_per_s": found.batch / found.overlapped,
        "stored_bytes_per_drive": found.stored,
        "drives_needed": found.drives_needed,
        "spill_interval": found.interval,
        "pending_bytes": found.pending,
        "years_of_writes": found.years,
        "batch_limit": found.batch_limit,
        "advice": found.advice,
    }


def _print(found: Plan) -> None:
    system = found.system
    table = Table(title=None, box=None, pad_edge=False)
    for heading in ("part", "ms", "bound by"):
        table.add_column(heading, justify="right" if heading == "ms" else "left")
    for part in found.parts:
        table.add_row(part.name, f"{1e3 * part.seconds:,.2f}", part.bound)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{found.model.name}, {found.batch} sequences of {found.tokens:,} tokens, "
        f"{system.processor} with {found.drives} {system.drive.name} (modelled)\n"
    )
    console.print(table)
    years = "not published" if found.years is None else f"{found.years:,.1f} years of decoding"
    console.print(
        f"\na step: {1e3 * found.step:,.2f} ms, {1e3 * found.overlapped:,.2f} ms with the batch in two halves "
        f"({found.batch / found.overlapped:,.1f} tokens/s)\n"
        f"X-cache: {found.alpha:g} of the work ({found.reason})\n"
        f"drives: {found.stored / 1e9:,.1f} GB on each; {found.drives_needed} hold everything; writes last {years}\n"
        f"host: {found.pending / 1e6:,.1f} MB wait for the next write, every {found.interval} tokens; "
        f"weights {'on the processor' if found.weights_on_processor else 'come over the link in each step'}\n"
        f"batch: {found.batch_limit:,} sequences at most fit the processor's memory\n"
        f"next: {found.advice}"
    )
