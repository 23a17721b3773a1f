"""What `kvdrive run` does where llama.cpp computes the model."""

from __future__ import annotations

from rich.console import Console

from kvdrive.cli.llama import opened, say
from kvdrive.config.run import RunConfig
from kvdrive.waiting import progress


def answer_question(config: RunConfig, given: frozenset[str], prompt_tokens: int, new_tokens: int) -> bool:
    """Ask for something that stands far back, and compare with stock llama.cpp. True if it may have said the same.

    The text goes to stdout, progress to stderr. `given`: see `cli.llama.opened`.
    """
    from kvdrive.generation.demonstration import demonstration
    from kvdrive.llama.compare import compared
    from kvdrive.llama.context import Context
    from kvdrive.llama.generate import Request, generate
    from kvdrive.llama.opening import open_stock, room_of
    from kvdrive.llama.report import report_of, table
    from kvdrive.llama.texts import Texts

    console, progressing = Console(), Console(stderr=True)
    with opened(config, given, progressing) as model:
        shown = demonstration(Texts(model, room_of(model, config, 0)), prompt_tokens)
        say(console, f"text: {shown.about}\nquestion: {shown.question}\nthe model goes on:")
        room = room_of(model, config, len(shown.ids) + new_tokens)
        with (
            Context(model, room) as context,
            progress("prompt: tokens", len(shown.ids), progressing) as on_tokens,
        ):
            done = generate(context.sequences[0], shown.ids, Request(new_tokens), on_tokens)
        report = report_of(model, done, {"model": config.model.model, "new_tokens": new_tokens})
    console.print(table(report))
    new = done.tokens[0]
    with open_stock(config) as stock, progress("stock llama.cpp: tokens", len(new), progressing) as on_tokens:
        found = compared(stock, shown.ids, new, on_tokens)
    say(console, found.verdict)
    say(console, shown.verdict(report["text"][0]))
    return found.passed
