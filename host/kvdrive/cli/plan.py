"""`kvdrive plan`: what a decode step would take on hardware that is not here, or on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvdrive.cli.command import JsonFlag, example
from kvdrive.config.sizes import bytes_of
from kvdrive.errors import InputError
from kvdrive.perf.plan import Plan, plan
from kvdrive.perf.shapes import HALF_BYTES, SHAPES, ModelShape
from kvdrive.perf.systems import SYSTEMS
from kvdrive.perf.xcache import FLOP_PER_WEIGHT

app = typer.Typer()
HERE = "here"
LABELS = {True: "from measured layers", False: "modelled"}


@app.command(name="plan", epilog=example("plan --model opt-66b --context 64K --drives 8"))
def show(
    model: Annotated[
        str, typer.Option(help=f"folder, file or name, or one of the papers' models: {', '.join(SHAPES)}")
    ],
    context: Annotated[str, typer.Option(help="tokens of each sequence, such as 64K")] = "32K",
    batch: Annotated[int, typer.Option(min=1, help="sequences")] = 16,
    drives: Annotated[
        int | None, typer.Option(min=1, max=1024, help="drives that share the heads; default: 4, and 1 here")
    ] = None,
    hardware: Annotated[
        str, typer.Option(help=f"one of {', '.join(SYSTEMS)}; or {HERE}: this machine, measured")
    ] = "a100-smartssd",
    drive: Annotated[
        Path | None, typer.Option(help=f"with {HERE}: a folder on the disk that would hold K and V; default: the cache")
    ] = None,
    device: Annotated[
        str, typer.Option(help=f"with {HERE}: what computes the model, as torch names it: cpu, cuda")
    ] = "cpu",
    gpus: Annotated[
        int,
        typer.Option(min=1, max=1024, help="GPUs that each hold a part of every matrix; each has a link of its own"),
    ] = 1,
    anew: Annotated[
        bool, typer.Option("--measure", help=f"with {HERE}: measure again what was measured before")
    ] = False,
    xcache: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of the work that X-cache takes; default: the best")
    ] = None,
    flop_factor: Annotated[
        float,
        typer.Option(min=0.5, help="FLOP of X-cache for a weight of both projections: two need 4, HILOS prints 2"),
    ] = FLOP_PER_WEIGHT,
    as_json: JsonFlag = False,
) -> None:
    """Say what a decode step would take, what bounds it, and what to change.

    Modelled from published rates; on this machine from a few of the model's layers, which are measured once.
    """
    tokens = bytes_of(context)
    if tokens < 1:
        raise InputError("a context has at least one token")
    if hardware == HERE:
        if drives not in (None, 1):
            raise InputError(f"--hardware {HERE} plans one drive: leave --drives out")
        if gpus != 1:
            raise InputError(f"--hardware {HERE} plans one device: leave --gpus out")
        if flop_factor != FLOP_PER_WEIGHT:
            raise InputError(f"--hardware {HERE} measures the projections of X-cache: leave --flop-factor out")
        found = _plan_here(model, (tokens, batch, xcache), drive, anew, device)
    elif hardware not in SYSTEMS:
        raise InputError(f"there is no hardware '{hardware}': choose one of {', '.join(SYSTEMS)}, {HERE}")
    elif drive is not None or anew or device != "cpu":
        raise InputError(f"--drive, --device and --measure go with --hardware {HERE}: other hardware is not measured")
    else:
        found = plan(_shape(model), SYSTEMS[hardware].of_gpus(gpus), tokens, batch, drives or 4, xcache, flop_factor)
    typer.echo(json.dumps(record(found))) if as_json else _print(found)


def _plan_here(name: str, step: tuple[int, int, float | None], drive: Path | None, anew: bool, device: str) -> Plan:
    """The plan for this machine. `step`: tokens, sequences, share of X-cache. Raises InputError, UnsupportedError,
    TargetError.
    """
    import torch

    from kvdrive.generation.checkpoints import device_named
    from kvdrive.perf import here, stored_rates
    from kvdrive.targets.opening import drive_folder
    from kvdrive.targets.options import DriveOptions
    from kvdrive.targets.temporary import temporary_folder

    config = here.config_of(SHAPES[name]) if name in SHAPES else _config(name)
    asked = here.Asked(config, _shape(name), *step, str(device_named(device)))
    with drive_folder(None) if drive is None else temporary_folder(drive) as folder:
        options = DriveOptions(target="cpu", threads=torch.get_num_threads(), capacity_bytes=4 << 30, folder=folder)
        return here.plan_here(asked, options, stored_rates.of_this_machine(anew=anew))


def _config(name: str) -> Any:
    from kvdrive.doctor.model import read_config
    from kvdrive.generation import places

    return read_config(places.find(name))


def _shape(name: str) -> ModelShape:
    if name in SHAPES:
        return SHAPES[name]
    config = _config(name)
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
        "label": LABELS[found.system.name == HERE],
        "rates": {
            "drive_bytes_per_s": found.system.drive.rate,
            "link_bytes_per_s": found.system.link,
            "flop_per_s": found.system.flops,
            "weights_bytes_per_s": found.system.memory_rate,
        },
        "alpha": found.alpha,
        "alpha_reason": found.reason,
        "parts": [asdict(part) for part in found.parts],
        "step_s": found.step,
        "overlapped_s": found.overlapped,
        "tokens_per_s": found.throughput,
        "stored_bytes_per_drive": found.stored,
        "drives_needed": found.drives_needed,
        "spill_interval": found.interval,
        "pending_bytes": found.pending,
        "years_of_writes": found.years,
        "batch_limit": found.batch_limit,
        "weights": {
            "on": found.weights_on,
            "bytes": found.model.weight_bytes,
            "bytes_per_step": found.weights_read,
            "bytes_per_s": found.weights_rate,
            "bytes_per_s_needed": found.weights_rate_needed,
        },
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
        f"{system.processor} with {found.drives} {system.drive.name} "
        f"({LABELS[system.name == HERE]})\n"
    )
    console.print(table)
    if system.name == HERE:
        console.print(
            f"\nmeasured: attention reads {_rate(system.drive.rate)} in the drive; X comes at {_rate(system.link)}; "
            f"projections {system.flops / 1e9:,.0f} GFLOP/s"
        )
    years = "not published" if found.years is None else f"{found.years:,.1f} years of decoding"
    faster = found.overlapped < found.step
    turns = f"; {1e3 * found.overlapped:,.2f} ms with --mini-batches 2" if faster else ""
    console.print(
        f"\na step: {1e3 * found.step:,.2f} ms ({found.throughput:,.3g} tokens/s){turns}\n"
        f"X-cache: {found.alpha:g} of the work ({found.reason})\n"
        f"drives: {found.stored / 1e9:,.1f} GB on each; {found.drives_needed} hold everything; writes last {years}\n"
        f"host: {found.pending / 1e6:,.1f} MB wait for the next write, every {found.interval} tokens\n"
        f"weights: {found.model.weight_bytes / 1e9:,.1f} GB on the {found.weights_on}; a step reads "
        f"{found.weights_read / 1e9:,.1f} GB at {_rate(found.weights_rate)}; "
        f"at {_rate(found.weights_rate_needed)} they would take as long as the rest\n"
        f"batch: {found.batch_limit:,} sequences at most fit the processor's memory\n"
        f"next: {found.advice}"
    )


def _rate(rate: float) -> str:
    return f"{rate / 1e9:,.2f} GB/s" if rate else "an unknown rate"
