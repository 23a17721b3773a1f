"""What the server's own layers take of a decode step: HTTP, and grammars of JSON schemas.

HTTP is the processor time of the event loop's thread while answers are streamed. The loop runs beside the thread that
computes, so this is the most that it can delay a step. What the next token may be is found by a thread of its own while
the model computes; a step pays for asking for it and for changing the logits. Both are timed by themselves, token by
token, and steps with and without a grammar take turns.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bench.rounds import Contender, Counts, Rounds, seconds, take_turns
from bench.server.servers import Models, Program, Running, ours, running
from bench.server.users import Prompts, together
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.generation.checkpoints import read_config, read_tokenizer
from kvdrive.server.grammar import Grammars

PLAIN, SCHEMA = "plain", "schema"
_STEPS = re.compile(r"^kvdrive_step_seconds_(sum|count) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Work:
    """`users` at once, up to `tokens` new tokens for each, in `rounds`."""

    users: tuple[int, ...]
    tokens: int
    rounds: int


FULL, QUICK = Work((1, 4, 8), 64, 5), Work((1, 2), 8, 1)


def schema(tokens: int) -> dict[str, object]:
    """Of an answer that is longer than `tokens`: a list of records."""
    record = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "size": {"type": "integer"},
            "new": {"type": "boolean"},
        },
        "required": ["name", "size", "new"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": record, "minItems": tokens}


def run(setup: Setup) -> list[Block]:
    """A row for each runtime and number of users."""
    work, models, load = setup.size(FULL, QUICK), Models.here(), os.getloadavg()[0]
    rows, kept = [], {}
    grammar = GrammarSeconds.measure(models.folder, setup.size(500, 20))
    with setup.folder() as folder:
        for program in ours(models, folder, setup):
            with running(program) as server:
                found = {users: measure(server, users, work) for users in work.users}
            rows += lines(program, found, grammar)
            kept[program.name] = {str(users): one.rounds for users, one in found.items()}
            setup.say(program.name)
    figures = {"load": load, "grammar_seconds": vars(grammar), "rounds": kept}
    return [Block("layers", [table(models, work, rows, load)], figures)]


def measure(server: Running, users: int, work: Work) -> Rounds:
    """Steps with and without a schema, of new prompts in each round."""
    prompts = Prompts(80)
    wanted = {"type": "json_schema", "json_schema": {"name": "records", "schema": schema(work.tokens)}}

    def stepped(**fields: object) -> Counts:
        before, busy = steps(server), loop_seconds(server)
        counts = together(server, prompts.take(users), work.tokens, ignore_eos=not fields, **fields)
        took, count = (after - once for after, once in zip(steps(server), before, strict=True))
        return {"seconds": took / count, "loop": (loop_seconds(server) - busy) / count, "tokens": counts["tokens"]}

    stepped()
    contenders = [Contender(PLAIN, stepped), Contender(SCHEMA, lambda: stepped(response_format=wanted))]
    return take_turns(contenders, work.rounds)


def steps(server: Running) -> tuple[float, float]:
    """Seconds of the decode steps so far, and their number."""
    found = dict(_STEPS.findall(server.get("/metrics")))
    return float(found["sum"]), float(found["count"])


def loop_seconds(server: Running) -> float:
    """Processor time of the event loop, which is the main thread of the process."""
    nanoseconds, _, _ = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1e9


@dataclass(frozen=True)
class GrammarSeconds:
    """Medians of what a grammar takes for a token: `beside` a step, in another thread, and `inside` of it."""

    beside: float
    inside: float

    @classmethod
    def measure(cls, folder: Path, tokens: int) -> GrammarSeconds:
        """No model computes: a token waits until the grammar says what may come."""
        tokenizer, config = read_tokenizer(folder), read_config(folder)
        generator, waited, inside = torch.Generator().manual_seed(1), [], []
        grammar = Grammars(tokenizer, config.vocab_size, frozenset([config.eos_token_id])).json(schema(tokens))
        for _ in range(tokens):
            logits = torch.randn(1, config.vocab_size, generator=generator)
            first = seconds(partial(grammar.restrict, logits))
            again = seconds(partial(grammar.restrict, logits))  # as where the model has taken longer
            token = int(logits.argmax())
            taken = seconds(partial(grammar.take, token))
            assert not grammar.complete
            waited.append(first - again)
            inside.append(again + taken)
        return cls(max(statistics.median(waited), 0), statistics.median(inside))


def lines(program: Program, found: dict[int, Rounds], grammar: GrammarSeconds) -> Iterator[list[str]]:
    """A row for each number of users."""
    for users, rounds in found.items():
        step = rounds.median(PLAIN)
        loop = statistics.median(
            busy / took for busy, took in zip(rounds.values(PLAIN, "loop"), rounds.values(PLAIN), strict=True)
        )
        yield [
            program.name,
            str(users),
            f"{1e3 * step:.1f} ms",
            f"{loop:.1%}",
            f"{1e6 * grammar.beside:.0f} µs",
            f"{1e6 * grammar.inside:.0f} µs",
            f"{users * grammar.inside / step:.1%}",
            f"{1 / rounds.faster(SCHEMA, PLAIN):.2f}",
        ]


def table(models: Models, work: Work, rows: list[list[str]], load: float) -> Table:
    """A row for each runtime and number of users."""
    head = ["Server", "Users", "A step", "HTTP", "Grammar, beside", "inside", "of a step", "A step with a schema"]
    legend = (
        "HTTP: processor time of the event loop while answers are streamed, as a share of the steps' time. "
        "Grammar: what a token takes in a thread of its own, while the model computes, and inside of a step. The last "
        "column: a step of answers that keep to a JSON schema, beside one of plain answers in the same round; other "
        "tokens are generated, and 1.00 is equal."
    )
    note = (
        f"Model {models.name}, {work.tokens} tokens for each user. Medians of {work.rounds} rounds that take turns; "
        f"load of the machine {load:.0f} before them. Where other work runs, steps take longer, and shares are smaller."
    )
    return Table(head, rows, note, legend, align="lrrrrrrr")
