"""`kvdrive kernel list|run|compare`: single kernels on arrays from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvdrive import abi
from kvdrive.choices import KERNEL_ENGINES
from kvdrive.cli.command import JsonFlag, example
from kvdrive.cli.paths import output_file
from kvdrive.errors import InputError
from kvdrive.kernels import compare as engines
from kvdrive.kernels import files
from kvdrive.kernels.registry import KERNELS, Kernel

app = typer.Typer(no_args_is_help=True, help="Run single kernels on arrays from disk and compare engines.")


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[KERNEL_ENGINES]

InFile = Annotated[Path, typer.Option("--in", help="inputs (.npz); `kvdrive kernel list` names the keys")]
ModeOption = Annotated[str, typer.Option("--mode", help="mode of the kernel; default: its first")]


def _kernel(name: str, mode: str) -> tuple[Kernel, str]:
    if name not in KERNELS:
        raise InputError(f"no kernel '{name}': choose one of {', '.join(KERNELS)}")
    kernel = KERNELS[name]
    chosen = mode or (kernel.modes[0] if kernel.modes else "")
    if chosen and chosen not in kernel.modes:
        choice = f"choose one of {', '.join(kernel.modes)}" if kernel.modes else "it has no modes"
        raise InputError(f"{name} has no mode '{chosen}': {choice}")
    return kernel, chosen


def _status_text(status: int) -> str:
    return "ok" if status == 0 else " | ".join(flag.name or "" for flag in abi.Status(status))


@app.command("list", epilog=example("kernel list"))
def list_kernels(as_json: JsonFlag = False) -> None:
    """List the kernels with their inputs, outputs and modes."""
    if as_json:
        typer.echo(
            json.dumps(
                {
                    k.name: {"summary": k.summary, "modes": k.modes, "inputs": k.inputs, "outputs": k.outputs}
                    for k in KERNELS.values()
                }
            )
        )
        return
    for kernel in KERNELS.values():
        modes = f"  (modes: {', '.join(kernel.modes)})" if kernel.modes else ""
        table = Table(title=f"{kernel.name}: {kernel.summary}{modes}", title_justify="left", show_header=False)
        for direction, keys in (("in", kernel.inputs), ("out", kernel.outputs)):
            for key, meaning in keys.items():
                table.add_row(direction, key, escape(meaning))
        Console().print(table)


@app.command("run", epilog=example("kernel run attention --in x.npz --out y.npz --engine hls"))
def run(
    name: str,
    source: InFile,
    target: Annotated[Path, typer.Option("--out", callback=output_file, help="outputs (.npz), `status` included")],
    engine: Annotated[EngineName, typer.Option(help="who computes")] = "golden",
    mode: ModeOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Run one kernel on arrays from disk. Exit code 2 if its status word is not 0."""
    kernel, mode = _kernel(name, mode)
    result = engines.run(kernel, engine, files.load(source, kernel, mode), mode)
    files.save(target, result)
    status = int(result["status"])
    shapes = {key: list(np.shape(value)) for key, value in result.items()}
    if as_json:
        found = {"kernel": name, "engine": engine, "mode": mode, "status": status, "out": shapes}
        typer.echo(json.dumps(found | ({"cycles": result["cycles"]} if "cycles" in result else {})))
    else:
        cycles = f" after {result['cycles']:,} cycles" if "cycles" in result else ""
        typer.echo(f"{name} on {engine}: status {_status_text(status)}{cycles}; {target} holds {', '.join(result)}")
    if status:
        raise typer.Exit(2)


@app.command("compare", epilog=example("kernel compare attention --in x.npz"))
def compare(
    name: str,
    source: InFile,
    names: Annotated[
        str, typer.Option("--engines", help="comma-separated, the first is the reference")
    ] = "golden,hls,fast,float64",
    mode: ModeOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Run several engines on the same arrays. Exit code 1 if bits differ (float64 only shows its distance)."""
    kernel, mode = _kernel(name, mode)
    chosen = [part.strip() for part in names.split(",") if part.strip()]
    unknown = [part for part in chosen if part not in KERNEL_ENGINES]
    if unknown or len(chosen) < 2:
        raise InputError(f"--engines takes two or more of {', '.join(KERNEL_ENGINES)}")
    rows = engines.compare(kernel, chosen, files.load(source, kernel, mode), mode)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows]))
    else:
        table = Table(title=f"{name} {mode}".strip())
        for column in ("output", "engine", "against", "values", "different", "max abs error"):
            table.add_column(column)
        for row in rows:
            error = "-" if row.max_abs_error is None else f"{row.max_abs_error:.3g}"
            table.add_row(row.output, row.engine, row.reference, str(row.values), str(row.different), error)
        Console().print(table)
    if any(engines.exact(row) and not row.identical for row in rows):
        raise typer.Exit(1)
