"""A generation as one dictionary, for report.json and the printed table. It is grouped by the origin of the numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.table import Table

from kvdrive import __version__
from kvdrive.generation.batches import Batch, Generated
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.report.rates import rate

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
        "weights": _weights_read(checkpoint, done, new_tokens - len(done.tokens)),
        "disk": done.record.transfers,
        "removals": [asdict(removal) for removal in done.removals],
        "modelled": {
            "prefill_device_ns": prefill["device_ns"],
            "device_ns_per_token": _mean([step["device_ns"] for step in decode]),
        },
        "steps": done.record.steps,
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {"kvdrive": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }


def table(report: Report) -> Table:
    """The report for people: one number in a cell."""
    shown = Table(show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column()
    for name, value in _rows(report):
        shown.add_row(name, value)
    return shown


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    prefill, decode = report["counted"]["prefill"], report["counted"]["decode"]
    measured, modelled, options = report["measured"], report["modelled"], report["options"]
    yield "model", f"{Path(report['model']['name']).name} ({report['model']['class']}, {report['model']['dtype']})"
    policy = options["attention"]
    yield "attention", policy if policy == "exact" else f"{policy}, ratio {options['ratio'] or 1}"
    yield "time to first token, wall time", f"{measured['seconds_to_first_token']:.2f} s"
    yield "tokens/s of decode, wall time", rate(measured)
    if stock := report["transformers"]:
        yield "stock transformers: time to first token", f"{stock['seconds_to_first_token']:.2f} s"
        yield "stock transformers: tokens/s of decode", rate(stock)
    if modelled["prefill_device_ns"] is not None:
        yield "device time of the prefill, modelled", f"{modelled['prefill_device_ns'] / 1e6:,.2f} ms"
        device_ns = modelled["device_ns_per_token"]
        yield "device time per token, modelled", "-" if device_ns is None else f"{device_ns / 1e6:,.3f} ms"
    inside, over = _places(options["target"])
    yield f"prefill: bytes {over}", f"{prefill['host_bytes']:,}"
    yield f"decode: bytes {over}", f"{decode['host_bytes']:,}"
    yield f"decode: bytes {inside}", f"{decode['inside_bytes']:,}"
    if decode["host_bytes"]:
        yield "decode: ratio of the two", f"{decode['inside_bytes'] / decode['host_bytes']:,.1f}"
    if written := report["writeback"]:
        yield "writes of a layer", f"{written['writes']:,}"
        yield f"tokens still pending (of {written['spill']})", f"{written['pending_tokens']}"
        yield "sending, wall time", f"{written['sending']:.2f} s"
        yield "share of it while the model computed", f"{written['overlap']:.0%}"
        if unread := written["unread"]:
            yield "mass not read, estimated: mean and worst step", f"{unread['mean']:.2%}, {unread['worst']:.2%}"
        if inputs := written["xcache"]:
            yield "sequences stored as layer inputs", f"{inputs['alpha']:.0%}"
            yield "bytes of layer inputs written, read", f"{inputs['bytes_written']:,}, {inputs['bytes_read']:,}"
            yield "rebuilding K and V, wall time", f"{inputs['rebuild_seconds']:.2f} s"
            yield "numbers corrected", f"{inputs['corrected']:,}"
    if weights := report["weights"]:
        yield from _weights(weights)
    if assistant := report["assistant"]:
        share = "-" if assistant["share"] is None else f"{assistant['share']:.0%}"
        yield "tokens that the assistant drafted", f"{assistant['drafted']:,}, of these {share} accepted"
        yield "calls of the model that verified them", f"{assistant['calls']:,}"
        if assistant["window_share"] is not None:
            yield "tokens of such a call that the window remembers", f"{assistant['window_share']:.0%}"
    if removals := report["removals"]:
        left = f"{sum(one['tokens'] for one in removals):,}, at {', '.join(str(one['at']) for one in removals)}"
        yield "tokens that left because the positions were used up", left
    total = {name: prefill[name] + decode[name] for name in prefill}
    yield "pages written", f"{total['pages_written']:,}"
    yield "pages read", f"{total['pages_read']:,}"
    if total["file_reads"]:
        yield "reads of the disk", f"{total['file_reads']:,}"
        yield "bytes read from the disk", f"{total['file_bytes_read']:,}"
    yield from _waits(report["disk"])
    yield "attention jobs", f"{total['attention_jobs']:,}"
    yield "commands", f"{total['commands']:,}"


def _weights_read(checkpoint: Checkpoint, done: Generated, tokens: int) -> dict[str, Any] | None:
    """The counters of weights on flash, with the bytes that each of so many `tokens` behind the first one took."""
    if checkpoint.weights is None or done.weights_bytes is None:
        return None
    return checkpoint.weights.report() | {"bytes_per_token": done.weights_bytes / tokens if tokens else None}


def _waits(disks: dict[str, dict[str, dict[str, int]]]) -> Iterator[tuple[str, str]]:
    """A row for each kind of transfer that had to wait for others of its disk."""
    for kinds in disks.values():
        for kind, count in kinds.items():
            if count["waited"]:
                mean_ms = count["waited_ns"] / count["waited"] / 1e6
                which = f"{count['waited']:,} of {count['transfers']:,}"
                yield f"transfers ({kind}) that waited for their turn", f"{which}, {mean_ms:.1f} ms on average"


def _weights(weights: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows for experts or neurons on flash."""
    if "ffn_commands" in weights:
        yield "feed-forward commands", f"{weights['ffn_commands']:,}"
        yield "bytes of x and of y", f"{weights['ffn_bytes_in']:,}, {weights['ffn_bytes_out']:,}"
        return
    if "layers" in weights:
        yield "layers in memory", f"{weights['layers_in_memory']:,} of {weights['layers']:,}"
        yield "bytes of weights read", f"{weights['flash_bytes']:,}"
        yield "bytes of layers that each call reads", f"{weights['bytes_per_call']:,}"
        yield "waiting for them, wall time", f"{weights['waited_ns'] / 1e9:.2f} s"
        return
    what = "experts" if "experts" in weights else "neurons"
    yield f"{what} in memory at most", f"{weights[f'{what}_in_memory']:,} of {weights[what]:,}"
    if what == "neurons":
        yield "neurons that were not zero", f"{weights['active']:.0%}"
    yield f"needed {what} that were in memory", f"{weights['hit_rate']:.0%}"
    if weights.get("recall") is not None:
        yield "experts that the layer before had foreseen", f"{weights['recall']:.0%}"
        yield "experts read ahead", f"{weights['read_ahead']:,}, of these {weights['read_ahead_withdrawn']:,} in part"
    yield "bytes of weights read", f"{weights['flash_bytes']:,}"
    if weights["bytes_per_token"] is not None:
        yield "decode: bytes of weights read per token", f"{weights['bytes_per_token']:,.0f}"


def _places(target: str) -> tuple[str, str]:
    """Words for the places where K and V are read and where commands and results go. They depend on the target."""
    if target == "cpu":
        return "of K and V read", "of commands and results"
    return "read inside the drive", "over the host interface"


def _counted(names: Sequence[str], steps: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(step[name] for step in steps) for name in names}


def _model(checkpoint: Checkpoint) -> dict[str, Any]:
    model = checkpoint.model
    return {
        "name": checkpoint.name,
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": model.num_parameters() + (checkpoint.weights.parameters if checkpoint.weights else 0),
        **asdict(checkpoint.shape),
    }


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
