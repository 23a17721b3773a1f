"""`kvdrive run`: continue a real text with a small model whose decode attention happens in the drive.

The model has random weights (made here once, cached in the output folder) and bytes as tokens, so nothing is downloaded
and the continuation is no language. What counts is the comparison: the same model with stock transformers sdpa.

Stock keeps K and V in binary32, the drive in binary16, so logits differ a little. With this model about one token in
600 is so close to a tie that the difference decides it (5 of 3072 measured, over 3 seeds and 16 prompts); the tokens
after it then follow another text. `run` counts the tokens as they come and shows how close the first tie was.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kvdrive import abi
from kvdrive.engine.generate import OnToken, generate, greedy
from kvdrive.errors import InputError
from kvdrive.targets.base import TargetStats
from kvdrive.targets.emulator import Emulator

PROMPT_TOKENS = 512
SEED = 2
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "initializer_range": 0.06,  # smaller ones repeat a few tokens, larger ones amplify rounding
}


@dataclass(frozen=True)
class Generation:
    """New tokens of one run and the wall time in seconds after each of them, from the start of the call."""

    tokens: list[int]
    times: list[float]

    @property
    def tokens_per_second(self) -> float | None:
        """Decode rate without the prefill; None for a single token."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0]) if len(self.times) > 1 else None


def run(
    prompt_file: Path | None,
    new_tokens: int,
    engine: str,
    out: Path,
    *,
    prompt_tokens: int = PROMPT_TOKENS,
    threads: int = 1,
) -> int:
    """Generate `new_tokens` after the first `prompt_tokens` bytes of `prompt_file`, in the drive and with stock sdpa.

    Prints the text, a table of traffic and the comparison, and writes `out`/report.json. `prompt_file` None takes the
    project's licence. Returns 0 when all tokens are identical, 1 otherwise. Raises KvdriveError.
    """
    console = Console()
    prompt_file = prompt_file or default_prompt()
    prompt = read_prompt(prompt_file, prompt_tokens)
    out.mkdir(parents=True, exist_ok=True)
    model = small_model(out)
    ids = torch.tensor([list(prompt)])

    with progress_bar(console) as bars, Emulator(out / "drive.kv", engine, threads, format=True) as target:
        ours = _timed(
            bars,
            f"drive ({engine})",
            new_tokens,
            lambda step: generate(model, ids, target, max_new_tokens=new_tokens, on_token=step),
        )
        stats = target.stats()
        stock = _timed(
            bars, "transformers (sdpa)", new_tokens, lambda step: greedy(model, ids, new_tokens, on_token=step)
        )

    identical = sum(a == b for a, b in zip(ours.tokens, stock.tokens, strict=True))
    report = _report(prompt_file, len(prompt), engine, ours, stock, identical, stats)
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    _show(console, prompt, engine, ours, stats)
    console.print(f"report: {out / 'report.json'}", highlight=False, soft_wrap=True)
    if identical < new_tokens:
        console.print(explain(model, prompt, ours.tokens, stock.tokens), highlight=False, soft_wrap=True)
    console.print(f"tokens identical to transformers: {identical}/{new_tokens}", highlight=False)
    return 0 if identical == new_tokens else 1


def explain(model: PreTrainedModel, prompt: bytes, ours: list[int], stock: list[int]) -> str:
    """How stock transformers rates the first two tokens that differ."""
    first = next(i for i, (a, b) in enumerate(zip(ours, stock, strict=True)) if a != b)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *stock[:first]]])).logits[0, -1]
    gap = float(logits[stock[first]] - logits[ours[first]])
    return (
        f"first difference: new token {first + 1}, {ours[first]} instead of {stock[first]}; "
        f"transformers puts their logits {gap:.2g} apart (standard deviation of its logits: {float(logits.std()):.2g})"
    )


def default_prompt() -> Path:
    """The licence at the root of the source tree. Raises InputError when the package runs without its source tree."""
    path = Path(__file__).resolve().parents[2] / "LICENSE"
    if not path.is_file():
        raise InputError("no default text beside the installed package: name one with --prompt-file")
    return path


def read_prompt(path: Path, tokens: int) -> bytes:
    """The first `tokens` bytes of a file. Raises InputError when there are none."""
    try:
        with path.open("rb") as file:
            prompt = file.read(tokens)
    except OSError as error:
        raise InputError(f"cannot read the prompt {path}: {error.strerror}") from error
    if not prompt:
        raise InputError(f"the prompt {path} is empty: name a file with text")
    return prompt


def small_model(folder: Path) -> PreTrainedModel:
    """A Llama of SHAPE with random float32 weights, made on the first call and read from `folder` afterwards."""
    transformers.utils.logging.disable_progress_bar()
    name = hashlib.sha256(json.dumps([SHAPE, SEED, torch.__version__]).encode()).hexdigest()[:12]
    path = folder / f"model-{name}"
    if not path.exists():
        config = LlamaConfig(**SHAPE, bos_token_id=None, eos_token_id=None, pad_token_id=0)
        with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory(dir=folder) as unfinished:
            torch.manual_seed(SEED)
            made = Path(unfinished) / "model"
            LlamaForCausalLM(config).save_pretrained(made)
            made.rename(path)  # so that an interrupted run leaves no half model behind
    model: PreTrainedModel = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model


def progress_bar(console: Console) -> Progress:
    """Tokens done and time elapsed, one line per generation."""
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _timed(bars: Progress, name: str, total: int, work: Callable[[OnToken], torch.Tensor]) -> Generation:
    task = bars.add_task(name, total=total)
    times: list[float] = []
    start = time.perf_counter()

    def step() -> None:
        times.append(time.perf_counter() - start)
        bars.advance(task)

    tokens = work(step)
    return Generation(tokens[0, -total:].tolist(), times)


def _report(
    prompt_file: Path,
    prompt_tokens: int,
    engine: str,
    ours: Generation,
    stock: Generation,
    identical: int,
    stats: TargetStats,
) -> dict[str, object]:
    return {
        "engine": engine,
        "model": SHAPE | {"seed": SEED, "dtype": "float32", "weights": "random"},
        "prompt_file": str(prompt_file),
        "prompt_tokens": prompt_tokens,
        "new_tokens": len(ours.tokens),
        "identical": identical,
        "tokens": {"drive": ours.tokens, "transformers": stock.tokens},
        "tokens_per_second": ours.tokens_per_second,
        "drive": asdict(stats) | {"bytes_read_inside": _bytes_read_inside(stats)},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def _bytes_read_inside(stats: TargetStats) -> int:
    return stats.pages_read * abi.PAGE_BYTES + stats.tail_bytes_read


def _show(console: Console, prompt: bytes, engine: str, ours: Generation, stats: TargetStats) -> None:
    plain: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}
    console.print(f"prompt, {len(prompt)} bytes, ends with: {prompt[-60:]!r}", **plain)
    console.print(f"continuation (random weights: bytes, no language): {bytes(ours.tokens)!r}", **plain)
    rate = ours.tokens_per_second
    table = Table(show_header=False)
    table.add_row(f"tokens/s of decode, wall time, engine {engine}", "-" if rate is None else f"{rate:.1f}")
    table.add_row("bytes over the host interface, to the drive", f"{stats.host_bytes_in:,}")
    table.add_row("bytes over the host interface, from the drive", f"{stats.host_bytes_out:,}")
    table.add_row("bytes read inside the drive", f"{_bytes_read_inside(stats):,}")
    table.add_row(f"pages of {abi.PAGE_BYTES} bytes written, read", f"{stats.pages_written:,}, {stats.pages_read:,}")
    table.add_row("commands, attention jobs", f"{stats.commands:,}, {stats.attention_jobs:,}")
    console.print(table)
