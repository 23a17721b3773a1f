"""The server, measured: conversations of several turns with and without a store, and in shared steps or alone.

Every way runs the same conversations in this process, on a drive of the cpu target: each turn sends the history and a
new question, and the conversations run side by side. CPU time, of all threads, is measured as well: it says more than
times on a busy machine.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import asdict, dataclass

import torch

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.config.run import RunConfig
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.sampling import Sampling
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.jobs import End, Event, Job, Limits, Token
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.transformers_engine import open_engine
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

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
    events: queue.Queue[Event] = queue.Queue()
    scheduler.submit(Job(prompt, new_tokens, Sampling(), events.put))
    tokens: list[int] = []
    while not isinstance(event := events.get(), End):
        if isinstance(event, Token):
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


def serve(checkpoint: Checkpoint, work: Work, batch: int, idle: int, threads: int) -> Counts:
    """Seconds, tokens and rows for each step of all conversations in one server."""
    metrics = Metrics()
    most = work.first + work.turns * (work.question + work.answer)
    room = 2 * work.conversations * most
    capacity = max(1 << 28, 2 * room * checkpoint.shape.bytes_per_token)
    drives = open_drives(DriveOptions(target="cpu", threads=threads, capacity_bytes=capacity))
    limits = Limits(room, running=work.conversations, idle=idle, batch=batch)
    sessions = SessionOptions() if idle else None
    engine = open_engine(checkpoint, drives, RunConfig(), idle, threads, sessions)
    scheduler = Scheduler(engine, limits, metrics)
    scheduler.start()
    vocabulary = checkpoint.vocabulary
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


def measure(model: str, work: Work, rounds: int, threads: int) -> Rounds:
    """All ways, after a short conversation that warms up."""
    checkpoint = checkpoints.load(model, "float32", "cpu")
    serve(checkpoint, Work(2, 1, 64, 8, 4), 16, 0, threads)
    found = [
        Contender(name, lambda batch=batch, idle=idle: serve(checkpoint, work, batch, idle, threads))
        for name, (batch, idle) in WAYS.items()
    ]
    return take_turns(found, rounds)


def run(setup: Setup) -> list[Block]:
    """A row for each way."""
    work = setup.size(Work(8, 6, 1000, 32, 32), Work(2, 2, 16, 4, 2))
    found = measure("mini", work, 1, setup.threads)
    return [Block("serve", [table("mini", work, found)], {"work": asdict(work), "rounds": found.rounds})]


def table(model: str, work: Work, found: Rounds) -> Table:
    """A row for each way."""
    slowest, busiest = (
        max(found.names, key=lambda name: found.median(name, what)) for what in ("seconds", "cpu_seconds")
    )
    rows = []
    for name in found.names:
        tokens, cpu = found.median(name, "tokens"), found.median(name, "cpu_seconds")
        share = found.median(name, "cached_tokens") / found.median(name, "prompt_tokens")
        rows.append(
            [
                name,
                f"{tokens / found.median(name):.0f}",
                f"{found.faster(name, slowest):.1f}x",
                f"{1000 * cpu / tokens:.1f} ms",
                f"{found.faster(name, busiest, 'cpu_seconds'):.1f}x",
                f"{found.median(name, 'rows_of_a_step'):.1f}",
                f"{share:.0%}",
            ]
        )
    head = ["way", "tokens a second", "as fast", "CPU of a token", "as little", "sequences in a step"]
    note = (
        f"Model `{model}`, {work.conversations} conversations of {work.turns} turns side by side: {work.first} tokens, "
        f"then {work.question} new ones for each turn, answers of {work.answer} tokens. cpu target, float32. Where "
        "other work runs, CPU time and ratios say more than times."
    )
    return Table([*head, "prompt tokens found"], rows, note)
