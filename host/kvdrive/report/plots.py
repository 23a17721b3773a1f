"""Two plots of a generation: bytes and time for each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvdrive import private
from kvdrive.errors import InputError


def check_installed() -> None:
    """Raises InputError when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'kvdrive[figures]', or leave `report` out") from error


def traffic(path: Path, decode: Sequence[dict[str, Any]], context: int) -> None:
    """Bytes for each token, in the drive and over the host interface. `context`: tokens before the first step."""
    lines = {
        "read inside the drive (counted)": [step["inside_bytes"] for step in decode],
        "over the host interface (counted)": [step["host_bytes"] for step in decode],
    }
    _plot(path, "Bytes for each token", "bytes", context, lines)


def times(path: Path, decode: Sequence[dict[str, Any]], context: int) -> None:
    """Time for each token: this machine's wall time and, where the target models it, the drive's time."""
    lines = {"host, all of the step (measured)": [step["seconds"] * 1e3 for step in decode]}
    if decode and decode[0]["device_ns"] is not None:
        lines["drive (modelled)"] = [step["device_ns"] / 1e6 for step in decode]
    _plot(path, "Time for each token", "ms", context, lines)


def _plot(path: Path, title: str, unit: str, context: int, lines: Mapping[str, Sequence[float]]) -> None:
    from matplotlib.figure import Figure  # the import takes a second; no display is needed

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for label, values in lines.items():
        axes.plot(range(context, context + len(values)), values, label=label)
    axes.set(title=title, xlabel="tokens of context", ylabel=unit, yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    with private.whole_file(path) as file:
        figure.savefig(file, dpi=150)
