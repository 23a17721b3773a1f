"""The server beside those of its runtimes: the first token and tokens a second for some users at once.

llama-server has the same GGUF file as our server with llama.cpp, and `transformers serve` the same folder as our server
with transformers. All servers run, and one at a time is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from bench.rounds import Contender, Round, Rounds, take_turns
from bench.server.servers import CONTEXT, Models, Program, Running, others, ours, running
from bench.server.users import Prompts, together
from bench.setup import Setup
from bench.table import Block, Table, milliseconds


@dataclass(frozen=True)
class Work:
    """`users` at once, each with a prompt of `characters` and up to `tokens` new tokens, in `rounds`."""

    users: tuple[int, ...]
    characters: int
    tokens: int
    rounds: int


FULL, QUICK = Work((1, 4, 8), 800, 32, 3), Work((1, 2), 80, 4, 1)


def run(setup: Setup) -> list[Block]:
    """A row for each number of users and server."""
    work, models, load = setup.size(FULL, QUICK), Models.here(), os.getloadavg()[0]
    with setup.folder() as folder, ExitStack() as started:
        programs = [*ours(models, folder, setup), *others(models, setup)]
        servers = {one.name: started.enter_context(running(one)) for one in programs}
        found = {users: measure(servers, work, users, setup) for users in work.users}
    missing = {one.beside for one in programs} - servers.keys()
    if missing:
        setup.say(f"not here, so not measured: {', '.join(sorted(missing))}")
    kept: dict[str, list[Round]] = {str(users): rounds.rounds for users, rounds in found.items()}
    return [Block("peers", [table(models, programs, work, found, load)], {"load": load, "rounds": kept})]


def measure(servers: Mapping[str, Running], work: Work, users: int, setup: Setup) -> Rounds:
    """Each server answers the same prompts in each round, and has seen none of them before."""

    def contender(name: str, server: Running) -> Contender:
        prompts = Prompts(work.characters)
        prompts.take(users * 1000)  # other ones for each number of users
        together(server, prompts.take(1), 2)  # loads the model
        return Contender(name, lambda: together(server, prompts.take(users), work.tokens))

    found = take_turns([contender(name, server) for name, server in servers.items()], work.rounds)
    setup.say(f"{users} users")
    return found


def table(models: Models, programs: list[Program], work: Work, found: Mapping[int, Rounds], load: float) -> Table:
    """A row for each number of users and server."""
    rows = [row for users, rounds in found.items() for row in lines(users, programs, rounds)]
    prompt = next(iter(found.values()))
    legend = (
        f"Each user sends a new prompt of {prompt.median(programs[0].name, 'prompt'):.0f} tokens and gets "
        f"{work.tokens} at most. In brackets: how many times as fast as the server with the same weights and runtime "
        "that is not ours; below 1, ours is slower."
    )
    note = (
        f"Model {models.name}, {CONTEXT:,} tokens of context for each user. Medians of {work.rounds} rounds that take "
        f"turns; load of the machine {load:.0f} before them. Tokens a second are those of all users, prompts included "
        "in the time. `transformers serve` computes one request after the other."
    )
    return Table(["Users", "Server", "First token, ms", "Tokens a second"], rows, note, legend, align="rlrr")


def lines(users: int, programs: list[Program], found: Rounds) -> Iterator[list[str]]:
    """A row for each server."""
    for one in programs:
        first, rate = found.median(one.name, "first"), 1 / found.median(one.name, "second_per_token")
        cells = [milliseconds(first), f"{rate:.1f}"]
        if one.beside in found.names and one.beside != one.name:
            ratios = (found.faster(one.name, one.beside, what) for what in ("first", "second_per_token"))
            cells = [f"{cell} ({ratio:.2f})" for cell, ratio in zip(cells, ratios, strict=True)]
        yield [str(users), one.name, *cells]
