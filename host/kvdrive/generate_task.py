"""What `kvdrive generate` and `kvdrive run` do: load, generate, compare, report."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kvdrive import generation, models
from kvdrive.drives import DriveOptions, open_drives
from kvdrive.engine.decode import GREEDY, Sampling
from kvdrive.generation import Batch, Generated
from kvdrive.models import Checkpoint
from kvdrive.progress import Display, bar
from kvdrive.report import files, plots
from kvdrive.report.summary import Report, summarise, table


@dataclass(frozen=True)
class Settings:
    """A generation as its caller describes it; `generate_cli` explains the fields."""

    model: str
    prompts: list[str]
    new_tokens: int
    dtype: str = "float32"
    prompt_tokens: int = 0
    sampling: Sampling = GREEDY
    ignore_stop: bool = False
    drives: DriveOptions = field(default_factory=DriveOptions)
    check: bool = False
    report: Path | None = None
    stream: bool = True

    def options(self) -> dict[str, Any]:
        """The fields for report.json, without the texts."""
        fields = asdict(self)
        del fields["prompts"], fields["stream"]
        return {name: str(value) if isinstance(value, Path) else value for name, value in _flat(fields).items()}


def run(settings: Settings, console: Console | None = None) -> Report:
    """Generate; text to stdout, the rest to `console` (stderr); writes the report folder. Returns the report.

    Raises KvdriveError.
    """
    console = console or Console(stderr=True)
    if settings.report:
        plots.check_installed()
    threads = settings.drives.threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    settings = replace(settings, drives=replace(settings.drives, threads=threads))
    with console.status(f"loading {settings.model}"):
        checkpoint = models.load(settings.model, settings.dtype)
    work = prepare(checkpoint, settings)
    done = _generate(checkpoint, work, settings, console)
    report = summarise(checkpoint, work, done, settings.options())
    report["check"] = _compare(checkpoint, work, done, console) if settings.check else None
    if settings.stream:
        for row in report["text"][1:]:
            print(row)
        console.print(table(report))
    if settings.report:
        paths = files.write(settings.report, report, done.record)
        console.print(f"report: {', '.join(map(str, paths))}", highlight=False, soft_wrap=True)
    if report["check"]:
        console.print(verdict(report), highlight=False, soft_wrap=True)
    return report


def prepare(checkpoint: Checkpoint, settings: Settings) -> Batch:
    """The prompts as a batch. Raises InputError when one is empty or too long."""
    prompts = [checkpoint.encode(text)[-settings.prompt_tokens :] for text in settings.prompts]
    checkpoint.check_length(max(map(len, prompts)), settings.new_tokens)
    stop_ids = frozenset[int]() if settings.ignore_stop else checkpoint.stop_ids
    return generation.batch(prompts, settings.new_tokens, settings.sampling, stop_ids)


def drive_bytes(checkpoint: Checkpoint, work: Batch) -> int:
    """Capacity for the K and V of a batch, rounded up generously: partly filled pages and collection need room."""
    rows, tokens = work.ids.shape
    return int(4 * rows * (tokens + work.new_tokens) * checkpoint.shape.bytes_per_token)


def verdict(report: Report) -> str:
    """The line that says whether the drive and stock transformers agree."""
    check = report["check"]
    line = f"tokens identical to transformers: {check['identical']}/{check['total']}"
    return f"{line} (first difference: {check['difference']})" if check["difference"] else line


def _generate(checkpoint: Checkpoint, work: Batch, settings: Settings, console: Console) -> Generated:
    options = settings.drives
    drives = replace(options, capacity_bytes=max(options.capacity_bytes, drive_bytes(checkpoint, work)))
    display = Display(console, checkpoint.tokenizer, settings.stream)
    with open_drives(drives) as target, display.generation(checkpoint.shape.layers, work.new_tokens):
        return generation.generate(checkpoint, work, target, on_step=display.on_step, on_layer=display.on_layer)


def _compare(checkpoint: Checkpoint, work: Batch, done: Generated, console: Console) -> dict[str, Any]:
    with bar(console, "transformers: tokens", work.new_tokens) as (bars, task):
        found = generation.compare_with_transformers(checkpoint, work, done.tokens, lambda: bars.advance(task))
    return asdict(found)


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries as one level: {"drives": {"engine": ..}} -> {"engine": ..}."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat
