"""An agent's loop: of each turn's prompt, the tokens that are computed. Every turn sends the whole conversation.

The agent reads: an answer of some tokens, then what a tool gave as the next message of the user, since the template of
SmolLM2 has no place for tools.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.server.servers import Models, Program, Running, others, ours, running
from bench.server.users import Prompts, ask
from bench.setup import Setup
from bench.table import Block, Table, milliseconds


@dataclass(frozen=True)
class Work:
    """`turns`, each with `characters` of a tool and up to `tokens` new tokens; `rounds` loops."""

    turns: int
    characters: int
    tokens: int
    rounds: int


FULL, QUICK = Work(12, 300, 16, 3), Work(2, 60, 2, 1)


def loop(server: Running, prompts: Prompts, work: Work) -> Counts:
    """A loop. `seconds`: from the last request to its first token."""
    messages: list[dict[str, str]] = []
    prompt, computed = 0, 0
    for text in prompts.take(work.turns):
        messages.append({"role": "user", "content": text})
        seen = ask(server, "/v1/chat/completions", messages=messages, max_tokens=work.tokens)
        messages.append({"role": "assistant", "content": seen.text})
        prompt += seen.usage["prompt_tokens"]
        computed += seen.usage["prompt_tokens"] - seen.cached
    last = seen.usage["prompt_tokens"]
    return {"seconds": seen.first, "prompt": prompt, "computed": computed, "last": last, "last_new": last - seen.cached}


def run(setup: Setup) -> list[Block]:
    """A row for each server."""
    work, models, load = setup.size(FULL, QUICK), Models.here(), os.getloadavg()[0]
    with setup.folder() as folder:
        programs = ours(models, folder, setup)
        programs += others(models, setup) if models.file else []  # the shipped model has no chat template
        found = measure(programs, work)
    return [Block("agent", [table(models, programs, work, found, load)], {"load": load, "rounds": found.rounds})]


def measure(programs: list[Program], work: Work) -> Rounds:
    """The same loops on each server, which has seen none of them before."""
    with ExitStack() as started:
        servers = {one.name: started.enter_context(running(one)) for one in programs}

        def contender(name: str, server: Running) -> Contender:
            prompts = Prompts(work.characters)
            ask(server, "/v1/completions", prompt="1", max_tokens=1)  # loads the model
            return Contender(name, lambda: loop(server, prompts, work))

        return take_turns([contender(name, server) for name, server in servers.items()], work.rounds)


def table(models: Models, programs: list[Program], work: Work, found: Rounds, load: float) -> Table:
    """A row for each server."""
    rows = []
    for one in programs:
        prompt, computed = found.median(one.name, "prompt"), found.median(one.name, "computed")
        first = milliseconds(found.median(one.name))
        if one.beside in found.names and one.beside != one.name:
            first += f" ({found.faster(one.name, one.beside):.2f})"
        last = f"{found.median(one.name, 'last_new'):.0f} of {found.median(one.name, 'last'):.0f}"
        rows.append([one.name, f"{prompt:,.0f}", f"{computed:,.0f}", f"{computed / prompt:.0%}", last, first])
    head = ["Server", "Tokens of all prompts", "Computed", "Share", "Of the last prompt", "Its first token, ms"]
    note = (
        f"Model {models.name}, {work.turns} turns with {work.characters} characters of a tool and up to {work.tokens} "
        f"new tokens each. Medians of {work.rounds} loops that take turns; load of the machine {load:.0f} before them. "
        "In brackets: how many times as fast as the server with the same weights and runtime that is not ours."
    )
    return Table(head, rows, note)
