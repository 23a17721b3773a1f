"""The server, measured: conversations of several turns with and without a store, and in shared steps or alone.

Every way runs the same conversations in this process, on a drive of the cpu target: each turn sends the history and a
new question, and the conversations run side by side. Times on a busy machine mean little: the ways take turns within
one run, the ratios are taken between their medians, and CPU time, of all threads, is measured as well. Writes the
table of docs/serve.md.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Sampling
from kvdrive.perf.kept import processor
from kvdrive.plugins.attach import AttentionOptions
from kvdrive.server.jobs import End, Job, Limits, Token
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.sessions.options import SessionOptions
from kvdrive.targets.opening import DriveOptions, open_drives
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parents[1] / "docs" / "serve.md"
WAYS = {  # name: batch, sessions kept
    "shared steps, history found on the drive": (16, 10_000),
    "one sequence for each call, history found": (1, 10_000),
    "shared steps, nothing kept": (16, 0),
    "one sequence for each call, nothing kept": (1, 0),
}


@dataclass(frozen=True)
class Work:
    """`conversations` of `turns` turns: `question` new tokens, then `answer` tokens; the first question is `first`."""

    conversations: int
    turns: int
    first: int
    question: int
    answer: int


def answer(scheduler: Scheduler, prompt: list[int], new_tokens: int) -> list[int]:
    """Wait for the tokens of an answer. Raises the error of the generation."""
    events: queue.Queue[Token | End] = queue.Queue()
    scheduler.submit(Job(prompt, new_tokens, Sampling(), events.put))
    tokens: list[int] = []
    while isinstance(event := events.get(), Token):
        tokens.append(event.number)
    if event.error:
        raise event.error
    return tokens


def talk(scheduler: Scheduler, work: Work, number: int, vocabulary: int) -> None:
    """One conversation. Its questions depend on `number` only."""
    generator = torch.Generator().manual_seed(number)
    history: list[int] = []
    for turn in range(work.turns):
        size = work.question if turn else work.first
        history += torch.randint(2, vocabulary, (size,), generator=generator).tolist()
        history += answer(scheduler, history, work.answer)


def run(checkpoint: Checkpoint, work: Work, batch: int, idle: int, threads: int) -> dict[str, float]:
    """Seconds, tokens and rows for each step of all conversations in one server."""
    metrics = Metrics()
    most = work.first + work.turns * (work.question + work.answer)
    room = 2 * work.conversations * most
    capacity = max(1 << 28, 2 * room * checkpoint.shape.bytes_per_token)
    drives = open_drives(DriveOptions(target="cpu", threads=threads, capacity_bytes=capacity))
    limits = Limits(room, running=work.conversations, idle=idle, batch=batch)
    sessions = SessionOptions() if idle else None
    scheduler = Scheduler(checkpoint, drives, AttentionOptions(), limits, metrics, threads, sessions)
    scheduler.start()
    vocabulary = checkpoint.model.get_input_embeddings().num_embeddings
    began, worked = time.perf_counter(), time.process_time()
    talks = [
        threading.Thread(target=talk, args=(scheduler, work, number, vocabulary))
        for number in range(work.conversations)
    ]
    for one in talks:
        one.start()
    for one in talks:
        one.join()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    scheduler.stop()
    found = metrics.figures()
    steps = metrics.value("batch_size_count")
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "tokens": found["generated_tokens"],
        "prompt_tokens": found["prompt_tokens"],
        "cached_tokens": found["cached_tokens"],
        "rows_of_a_step": metrics.value("batch_size_sum") / steps if steps else 0,
    }


def measure(model: str, work: Work, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """Medians for each way over the rounds, in which the ways take turns."""
    checkpoint = checkpoints.load(model, "float32", "cpu")
    run(checkpoint, Work(2, 1, 64, 8, 4), 16, 0, threads)  # warm up
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, (batch, idle) in WAYS.items():
            found[name].append(run(checkpoint, work, batch, idle, threads))
    return {name: {key: statistics.median(r[key] for r in runs) for key in runs[0]} for name, runs in found.items()}


def table(model: str, work: Work, found: dict[str, dict[str, float]]) -> str:
    """The rows of docs/serve.md."""
    slowest, busiest = (max(one[key] for one in found.values()) for key in ("seconds", "cpu_seconds"))
    lines = [
        "| way | tokens a second | as fast | CPU of a token | as little | sequences in a step | prompt tokens found |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in found.items():
        share = one["cached_tokens"] / one["prompt_tokens"]
        lines.append(
            f"| {name} | {one['tokens'] / one['seconds']:.0f} | {slowest / one['seconds']:.1f}x "
            f"| {1000 * one['cpu_seconds'] / one['tokens']:.1f} ms | {busiest / one['cpu_seconds']:.1f}x "
            f"| {one['rows_of_a_step']:.1f} | {share:.0%} |"
        )
    about = (
        f"Model `{model}`, {work.conversations} conversations of {work.turns} turns side by side: {work.first} tokens, "
        f"then {work.question} new ones for each turn, answers of {work.answer} tokens. cpu target, float32. "
        f"Measured on {processor()}, while other work ran: the times mean little, CPU time and ratios more."
    )
    return "\n".join([*lines, "", about])


def main() -> None:
    """Measure, print, and write the table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--first", type=int, default=1000, help="tokens of the first question")
    parser.add_argument("--question", type=int, default=32)
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-page", action="store_true", help="leave docs/serve.md as it is")
    given = parser.parse_args()
    work = Work(given.conversations, given.turns, given.first, given.question, given.answer)
    found = measure(given.model, work, given.rounds, given.threads)
    text = table(given.model, work, found)
    print(text)
    if given.json:
        given.json.write_text(json.dumps({"model": given.model, "work": vars(given) | {"json": None}, "ways": found}))
    if not given.no_page:
        write_blocks(PAGE, {"bench-serve": text})


if __name__ == "__main__":
    main()
