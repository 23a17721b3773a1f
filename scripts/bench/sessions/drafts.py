"""Drafted tokens in the server, measured: with prompt lookup and without, on an answer that repeats and on another one.

The prompt is source code, and K and V of it are on the disk: the cpu target, which reads them around the page cache.
One answer is a part of the prompt with every so many tokens changed, as an edit of a file is. The other one is code
that comes behind the prompt. Both are known before, and the model computes them all the same; what it would have said
itself does not matter.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

import torch

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import server
from kvdrive.config.run import RunConfig
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import GREEDY
from kvdrive.server.drafts import looked_up
from kvdrive.server.jobs import End, Event, Job, Limits, Token
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.transformers_engine import open_engine
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

LOOKUP = 3
EDIT, OTHER = "an edit of the prompt", "other code"


@dataclass(frozen=True)
class Work:
    """`prompt` and `answer`: tokens; `changed`: every so many tokens of an edit are others."""

    prompt: int
    answer: int
    changed: int = 40


@dataclass(frozen=True)
class Said(Rules):
    """An answer that is known before."""

    tokens: tuple[int, ...] = field(default=())

    def applied(self, logits: torch.Tensor, prompt: object, answer: object) -> torch.Tensor:
        """See Rules."""
        found = torch.full_like(logits, -torch.inf)
        found[0, self.tokens[len(answer)]] = 0.0  # type: ignore[arg-type]
        return found


def code(checkpoint: Checkpoint, tokens: int) -> list[int]:
    """So many tokens of the server's own source."""
    files = sorted(Path(server.__file__).parent.glob("*.py"))
    found = chain.from_iterable(checkpoint.encode(one.read_text()) for one in files if one.stat().st_size)
    return [token for token, _ in zip(found, range(tokens), strict=False)]


def answers_of(text: list[int], work: Work) -> dict[str, list[int]]:
    """What is answered to the beginning of a text, by its kind."""
    first = (work.prompt - work.answer) // 2
    edited = list(text[first : first + work.answer])
    for place in range(work.changed // 2, work.answer, work.changed):
        edited[place] = edited[place - 1]
    return {EDIT: edited, OTHER: text[work.prompt : work.prompt + work.answer]}


def serve(checkpoint: Checkpoint, prompt: list[int], answer: list[int], lookup: int, setup: Setup) -> Counts:
    """Seconds from the first token of an answer to its last one, and what was counted meanwhile."""
    most = len(prompt) + len(answer)
    capacity = max(1 << 28, 4 * most * checkpoint.shape.bytes_per_token)
    metrics, limits, events = Metrics(), Limits(2 * most, running=1, idle=0), queue.Queue[Event]()
    with setup.folder(capacity) as folder:
        drives = open_drives(DriveOptions(target="cpu", folder=folder, threads=setup.threads, capacity_bytes=capacity))
        engine = open_engine(checkpoint, drives, RunConfig(), 0, setup.threads)
        scheduler = Scheduler(engine, limits, metrics, looked_up(lookup))
        scheduler.start()
        scheduler.submit(Job(prompt, len(answer), GREEDY, events.put, rules=Said(tokens=tuple(answer))))
        began, found, before = 0.0, list[int](), 0.0
        while not isinstance(event := events.get(), End):
            if isinstance(event, Token):
                found.append(event.number)
                if len(found) == 1:
                    began, before = time.perf_counter(), metrics.figures()["read_inside_bytes"]
        seconds = time.perf_counter() - began
        scheduler.stop()
    if event.error:
        raise event.error
    assert found == answer
    figures = metrics.figures()
    return {
        "seconds": seconds,
        "steps": metrics.value("batch_size_count"),
        "drafted": figures["drafted_tokens"],
        "accepted": figures["accepted_tokens"],
        "read_bytes": figures["read_inside_bytes"] - before,
    }


def measure(
    checkpoint: Checkpoint, text: list[int], answers: Mapping[str, list[int]], work: Work, rounds: int, setup: Setup
) -> Rounds:
    """Each answer with and without drafts."""
    prompt = text[: work.prompt]
    found = [
        Contender(
            f"{kind}, lookup {lookup}",
            lambda answer=answer, lookup=lookup: serve(checkpoint, prompt, answer, lookup, setup),
        )
        for kind, answer in answers.items()
        for lookup in (0, LOOKUP)
    ]
    return take_turns(found, rounds)


def run(setup: Setup) -> list[Block]:
    """A row for each answer."""
    work = setup.size(Work(1_000, 120), Work(400, 60, 20))
    checkpoint = checkpoints.load("mini", "float32", "cpu")
    text = code(checkpoint, work.prompt + work.answer)
    found = measure(checkpoint, text, answers_of(text, work), work, setup.size(5, 1), setup)
    return [Block("drafts", [table(work, found)], {"work": asdict(work), "rounds": found.rounds})]


def table(work: Work, found: Rounds) -> Table:
    """A row for each answer."""
    rows = []
    for kind in (EDIT, OTHER):
        without, drafting = (f"{kind}, lookup {lookup}" for lookup in (0, LOOKUP))
        drafted, accepted = (found.median(drafting, what) for what in ("drafted", "accepted"))
        tokens = work.answer - 1
        rows.append(
            [
                kind,
                f"{tokens / found.median(without):.1f}",
                f"{tokens / found.median(drafting):.1f}",
                f"{found.faster(drafting, without):.2f}x",
                f"{tokens / found.median(drafting, 'steps'):.1f}",
                f"{accepted / drafted:.0%} of {drafted:.0f}" if drafted else "none drafted",
                f"{found.faster(drafting, without, 'read_bytes'):.1f}x",
            ]
        )
    head = ["answer", "tokens a second", f"with `--lookup {LOOKUP}`", "as fast", "tokens of a step", "accepted"]
    note = (
        f"Model `mini`, a prompt of {work.prompt} tokens of code and answers of {work.answer}; of an edit, each "
        f"{work.changed}th token is another one. cpu target on the disk, read around the page cache, float32. Times "
        "from the first token to the last; ratios are taken inside a round."
    )
    return Table([*head, "bytes read, as few"], rows, note)
