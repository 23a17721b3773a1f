"""A generation with llama.cpp as one dictionary and as a table: its times, and what the drive did for it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from kvdrive import __version__, abi
from kvdrive.llama.model import Model
from kvdrive.llama.vocabulary import text_of
from kvdrive.report.rates import rate

Counters = dict[str, Any]


@dataclass(frozen=True)
class Generated:
    """`prompts`: numbers of their tokens that were computed; `tokens`: the new ones of each. `first_seconds`: until
    each text has its first token; `seconds`: for those behind. `before`, `prefilled`, `after`: the drive's counters
    before the prompts, behind them, and at the end.
    """

    prompts: list[int]
    tokens: list[list[int]]
    first_seconds: float
    seconds: float
    before: Counters
    prefilled: Counters
    after: Counters


def report_of(model: Model, done: Generated, options: dict[str, Any]) -> dict[str, Any]:
    """Everything about a generation, with the names of `report.summary` for the same things."""
    later = sum(len(one) - 1 for one in done.tokens)
    return {
        "runtime": "llama.cpp",
        "options": options,
        "model": {
            "name": str(model.file),
            "description": model.description,
            "parameters": model.parameters,
            "bytes": model.bytes,
        },
        "prompts": done.prompts,
        "tokens": done.tokens,
        "text": [text_of(model.vocabulary, one) for one in done.tokens],
        "measured": {
            "seconds_to_first_token": done.first_seconds,
            "prompt_tokens_per_second": sum(done.prompts) / done.first_seconds,
            "decode_tokens_per_second": later / done.seconds if later > 0 else None,
        },
        "counted": {
            "prefill": _counted(done.before, done.prefilled),
            "decode": _counted(done.prefilled, done.after),
        },
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count(), "threads": model.settings.threads},
        "versions": {"kvdrive": __version__, "llama.cpp": model.functions.release},
    }


def table(report: dict[str, Any]) -> Table:
    """The report for people: one number in a cell."""
    shown = Table(show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column()
    measured, counted = report["measured"], report["counted"]
    rows: Sequence[tuple[str, str]] = [
        ("model", report["model"]["description"]),
        ("bytes of weights", f"{report['model']['bytes']:,}"),
        ("time to first token, wall time", f"{measured['seconds_to_first_token']:.2f} s"),
        ("tokens/s of the prompt, wall time", f"{measured['prompt_tokens_per_second']:.1f}"),
        ("tokens/s of decode, wall time", rate(measured)),
        ("prefill: bytes of K and V read", f"{counted['prefill']['kv_bytes_read']:,}"),
        ("decode: bytes of K and V read", f"{counted['decode']['kv_bytes_read']:,}"),
        ("pages written", f"{sum(part['pages_written'] for part in counted.values()):,}"),
        ("bytes read from the disk", f"{sum(part['file_bytes_read'] for part in counted.values()):,}"),
        ("queries that the drive computed", f"{sum(part['queries'] for part in counted.values()):,}"),
        ("commands", f"{sum(part['commands'] for part in counted.values()):,}"),
    ]
    for name, value in rows:
        shown.add_row(name, value)
    return shown


def _counted(before: Counters, after: Counters) -> dict[str, int]:
    """What the drive did between two looks at its counters."""
    drive = {name: after["drive"][name] - before["drive"][name] for name in after["drive"]}
    names = ("commands", "failed_commands", "pages_read", "staged_bytes_read", "pages_written", "file_reads")
    found = {name: drive[name] for name in (*names, "file_bytes_read", "queries", "appended_rows")}
    found["kv_bytes_read"] = drive["pages_read"] * abi.PAGE_BYTES + drive["staged_bytes_read"]
    return found
