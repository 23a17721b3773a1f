"""What `kvdrive generate` and `kvdrive run` do: load, generate, compare, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kvdrive import _native
from kvdrive.config.run import RunConfig
from kvdrive.generation import batches, checkpoints
from kvdrive.generation.assistant import Assistant, load_assistant, require_one
from kvdrive.generation.batches import Batch, Generated
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.progress import Display, bar
from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.report import files, plots
from kvdrive.report.summary import Report, summarise, table
from kvdrive.report.trace import covered
from kvdrive.targets.opening import open_drives, require_space
from kvdrive.waiting import waiting_for
from kvdrive.weights.opening import load_from
from kvdrive.weights.whole import load_whole

ReadPrompts = Callable[[Checkpoint], list[list[int]]]
_VERIFIER = "hls"
NO_COMPARISON: Report = {"check": None, "transformers": None}


@dataclass(frozen=True)
class Settings:
    """A generation as its caller describes it; `cli.generate` explains the fields."""

    config: RunConfig
    new_tokens: int
    sampling: Sampling = GREEDY
    ignore_stop: bool = False
    session: str = ""  # the session that goes on, by name
    check: bool = False
    verify_steps: int = 0  # decode steps that the compiled kernels repeat; their results must have the same bits
    report: Path | None = None
    stream: bool = True
    verbose: bool = False  # shows the table of the report

    def options(self) -> dict[str, Any]:
        """The fields for report.json."""
        fields = asdict(self)
        del fields["stream"], fields["verbose"]
        run = fields.pop("config")
        kept = {"sessions": run.pop("sessions")}
        if self.config.weights.weights == "memory":
            run["weights"] = {"weights": None}
        elif self.config.weights.weights == "stream":
            run["weights"] = {"weights": "stream", "weights_memory": self.config.weights.weights_memory}
        else:
            run["weights"]["on_drive"] = run["weights"].pop("weights") == "drive"
        return {
            name: str(value) if isinstance(value, Path | Fraction) else value
            for name, value in (_flat(fields) | _flat(run) | kept).items()
        }


def run(settings: Settings, read_prompts: ReadPrompts, console: Console) -> Report:
    """Generate; text to stdout, the rest to `console`; writes the report folder. Returns the report.

    Raises KvdriveError.
    """
    if settings.report:
        plots.check_installed()
    threads = settings.config.target.threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    settings = replace(settings, config=settings.config.changed(threads=threads))
    with waiting_for(f"loading {settings.config.model.model}", console):
        checkpoint = load_from(settings.config)
    with closing(checkpoint):
        return _run(checkpoint, settings, read_prompts, console)


def _run(checkpoint: Checkpoint, settings: Settings, read_prompts: ReadPrompts, console: Console) -> Report:
    """`run` with the model in memory."""
    work = prepare(checkpoint, settings, read_prompts(checkpoint))
    assistant = None
    if settings.config.model.assistant:
        require_one(len(work.ids))
        with waiting_for(f"loading {settings.config.model.assistant}", console):
            assistant = load_assistant(settings.config.model, checkpoint)
    settings = replace(settings, config=_with_room(settings.config, checkpoint, work))
    done = _generate(checkpoint, work, settings, console, assistant)
    report = summarise(checkpoint, work, done, settings.options())
    report["assistant"] = assistant.report() if assistant else None
    report |= _compare(_whole(checkpoint, settings), work, done, console) if settings.check else NO_COMPARISON
    report["verify"] = _verify(checkpoint, work, done, settings, console) if settings.verify_steps else None
    if settings.stream:
        for number, row in enumerate(report["text"][1:], start=1):
            console.print(f"row {number}:", style="dim")
            print(row, flush=True)
    if settings.verbose:
        console.print(table(report))
    if settings.report:
        paths = files.write(settings.report, report, done.record)
        _say(console, f"report: {', '.join(map(str, paths))}")
        for clock, time_span in covered(done.record):
            _say(console, f"timeline ({clock}): {time_span}")
    for line in verdicts(report):
        _say(console, line)
    return report


def passed(report: Report) -> bool:
    """True if every comparison found equal results. Sparse attention may choose other tokens without failing."""
    check, verify = report["check"], report["verify"]
    sparse = report["options"]["attention"] != "exact"
    same_tokens = sparse or check is None or check["identical"] == check["total"]
    return same_tokens and (verify is None or verify["identical"] == verify["steps"])


def prepare(checkpoint: Checkpoint, settings: Settings, prompts: list[list[int]]) -> Batch:
    """The prompts as a batch. Raises InputError when one is too long."""
    limits = settings.config.limits
    new_tokens = 0 if limits.overflow == "trim" else settings.new_tokens
    checkpoint.check_length(max(map(len, prompts)), new_tokens, limits.context)
    stop_ids = frozenset[int]() if settings.ignore_stop else checkpoint.stop_ids
    work = batches.batch(prompts, settings.new_tokens, settings.sampling, stop_ids)
    return replace(work, session=settings.session)


def drive_bytes(checkpoint: Checkpoint, work: Batch) -> int:
    """Capacity for the K and V of a batch, with extra room for partly filled pages and collection."""
    rows, tokens = work.ids.shape
    return int(4 * rows * (tokens + work.new_tokens) * checkpoint.shape.bytes_per_token)


def verdicts(report: Report) -> Iterator[str]:
    """A line for each comparison."""
    if verify := report["verify"]:
        done, wanted = verify["identical"], verify["steps"]
        yield f"decode steps bit-identical on the {verify['engine']} engine: {done}/{wanted}"
    if check := report["check"]:
        line = f"tokens identical to transformers: {check['identical']}/{check['total']}"
        if ties := check["ties"]:
            line += f", {ties} of them exact ties, which count as equal: transformers rates both tokens the same"
        yield f"{line} (first difference: {check['difference']})" if check["difference"] else line


def _with_room(config: RunConfig, checkpoint: Checkpoint, work: Batch) -> RunConfig:
    capacity = drive_bytes(checkpoint, work)
    return config.changed(
        capacity_bytes=max(config.target.capacity_bytes, capacity),
        needed_bytes=capacity // 2,
        group=checkpoint.shape.group,
    )


def _generate(
    checkpoint: Checkpoint, work: Batch, settings: Settings, console: Console, assistant: Assistant | None
) -> Generated:
    display = Display(console, checkpoint.tokenizer, settings.stream)
    keep = settings.verify_steps + 1
    require_space(settings.config.target)
    with (
        open_drives(settings.config.target, lambda sentence: _say(console, sentence)) as drives,
        display.generation(checkpoint.shape.layers, work.new_tokens),
    ):
        return batches.generate(
            checkpoint,
            work,
            drives,
            settings.config,
            on_step=display.on_step,
            on_layer=display.on_layer,
            keep_logits=keep,
            assistant=assistant,
        )


def _verify(
    checkpoint: Checkpoint, work: Batch, done: Generated, settings: Settings, console: Console
) -> dict[str, Any]:
    """Repeat the first decode steps in a new drive, with the kernels that are compiled from the HLS sources."""
    steps = min(settings.verify_steps, work.new_tokens - 1)
    options = replace(settings.config.target, engine=_VERIFIER, folder=None, format=False)
    short = replace(work, new_tokens=steps + 1)
    _native.prepare_attention(checkpoint.shape.group)  # shows its own progress, so not beside a bar
    with bar(console, f"{_VERIFIER}: tokens", steps + 1) as (bars, task), open_drives(options) as drives:
        again = batches.generate(
            checkpoint,
            short,
            drives,
            settings.config,
            on_step=lambda step: bars.advance(task),
            keep_logits=steps + 1,
        )
    same = [torch.equal(a, b) for a, b in zip(done.logits[1 : steps + 1], again.logits[1:], strict=True)]
    return {"engine": _VERIFIER, "steps": steps, "identical": sum(same)}


def _whole(checkpoint: Checkpoint, settings: Settings) -> Checkpoint:
    """The checkpoint with all weights in memory, which must have room for them."""
    config = settings.config
    if config.weights.weights == "memory":
        return checkpoint
    if config.weights.weights == "stream":
        return checkpoints.load(config.model.model, config.model.dtype)
    return load_whole(config.model.model, config.model.dtype, config.stored())


def _compare(checkpoint: Checkpoint, work: Batch, done: Generated, console: Console) -> Report:
    """Repeat the generation with stock transformers: the comparison in `check`, its time in `transformers`."""
    marks = [time.perf_counter()]

    def on_token() -> None:
        marks.append(time.perf_counter())
        bars.advance(task)

    with bar(console, "transformers: tokens", work.new_tokens) as (bars, task):
        found = batches.compare_with_transformers(checkpoint, work, done.tokens, on_token)
    began, first, *later = marks
    rate = len(later) * len(work.ids) / (later[-1] - first) if later else None
    stock = {"seconds_to_first_token": first - began, "decode_tokens_per_second": rate}
    return {"check": asdict(found), "transformers": stock}


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries as one level: {"sampling": {"top_k": ..}} -> {"top_k": ..}."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat
