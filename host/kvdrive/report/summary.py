"""A generation as one dictionary: what report.json holds and the printed table shows, by origin of the numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
import transformers
from rich.table import Table

from kvdrive import __version__
from kvdrive.generation.batches import Batch, Generated
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.report.plots import host_bytes, inside_bytes

Report = dict[str, Any]


def summarise(checkpoint: Checkpoint, work: Batch, done: Generated, options: dict[str, Any]) -> Report:
    """Everything about a generation except its comparison with transformers."""
    prefill, *decode = done.record.steps
    names = list(done.record.marks[0].counters)
    new_tokens = sum(map(len, done.tokens))
    decode_seconds = sum(step["seconds"] for step in decode)
    return {
        "options": options,
        "model": _model(checkpoint),
        "prompts": work.mask.sum(1).tolist(),
        "tokens": done.tokens,
        "text": [checkpoint.tokenizer.decode(row, skip_special_tokens=True) for row in done.tokens],
        "measured": {
            "seconds_to_first_token": prefill["seconds"],
            "decode_tokens_per_second": (new_tokens - len(done.tokens)) / decode_seconds if decode else None,
        },
        "counted": {
            "prefill": _counted(names, [prefill]),
            "decode": _counted(names, decode),
        },
        "writeback": done.writeback,
        "modelled": {
            "prefill_device_ns": prefill["device_ns"],
            "device_ns_per_token": _mean([step["device_ns"] for step in decode]),
        },
        "steps": done.record.steps,
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {"kvdrive": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }


def table(report: Report) -> Table:
    """The report for people."""
    prefill, decode = report["counted"]["prefill"], report["counted"]["decode"]
    measured, modelled = report["measured"], report["modelled"]
    rate, device_ns = measured["decode_tokens_per_second"], modelled["device_ns_per_token"]
    shown = Table(show_header=False)
    shown.add_row("time to first token, wall time", f"{measured['seconds_to_first_token']:.2f} s")
    shown.add_row("tokens/s of decode, wall time", "-" if rate is None else f"{rate:.1f}")
    if modelled["prefill_device_ns"] is not None:
        shown.add_row("device time of the prefill, modelled", f"{modelled['prefill_device_ns'] / 1e6:,.2f} ms")
        per_step = "-" if device_ns is None else f"{device_ns / 1e6:,.3f} ms"
        shown.add_row("device time per token, modelled", per_step)
    shown.add_row("prefill: bytes over the host interface", f"{prefill['host_bytes']:,}")
    shown.add_row("decode: bytes over the host interface", f"{decode['host_bytes']:,}")
    shown.add_row("decode: bytes read inside the drive", f"{decode['inside_bytes']:,}")
    if decode["host_bytes"]:
        ratio = decode["inside_bytes"] / decode["host_bytes"]
        shown.add_row("decode: bytes inside for each byte over the interface", f"{ratio:,.1f}")
    if written := report["writeback"]:
        waiting = f"{written['writes']:,}, {written['pending_tokens']} of {written['spill']}"
        shown.add_row("writes of a layer, tokens still pending", waiting)
        shown.add_row(
            "sending behind the model's work, wall time", f"{written['overlap']:.0%} of {written['sending']:.2f} s"
        )
    total = {name: prefill[name] + decode[name] for name in prefill}
    shown.add_row("pages written, read", f"{total['pages_written']:,}, {total['pages_read']:,}")
    if total["file_reads"]:
        bytes_read = total["file_bytes_read"]
        shown.add_row("reads of the disk, bytes", f"{total['file_reads']:,}, {bytes_read:,}")
    shown.add_row("attention jobs, commands", f"{total['attention_jobs']:,}, {total['commands']:,}")
    return shown


def _counted(names: Sequence[str], steps: Sequence[dict[str, Any]]) -> dict[str, int]:
    total = {name: sum(step[name] for step in steps) for name in names}
    total["host_bytes"] = sum(map(host_bytes, steps))
    total["inside_bytes"] = sum(map(inside_bytes, steps))
    return total


def _model(checkpoint: Checkpoint) -> dict[str, Any]:
    model = checkpoint.model
    return {
        "name": checkpoint.name,
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": model.num_parameters(),
        **asdict(checkpoint.shape),
    }


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
