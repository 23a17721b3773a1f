"""Progress of a generation on the terminal: bars until the first token, then the text itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from transformers import PreTrainedTokenizerBase

from kvdrive.generation.decode import Step
from kvdrive.generation.text import TextStream


class Display:
    """Progress on `console`; the text of one row on stdout as it comes, unless `stream` is False.

    The bar and streamed text would disturb each other, so the bar ends with the first token.
    """

    def __init__(self, console: Console, tokenizer: PreTrainedTokenizerBase, stream: bool) -> None:
        self._text = TextStream(tokenizer) if stream else None
        self._bars = _bars(console)
        self._task: TaskID | None = None

    @contextmanager
    def generation(self, layers: int, new_tokens: int) -> Iterator[Display]:
        """A context manager around one generation: shows its progress from start to end."""
        self._new_tokens = new_tokens
        self._task = self._bars.add_task("prefill: layers", total=layers)
        self._bars.start()
        try:
            yield self
        finally:
            self._bars.stop()
            if self._text:
                _write(self._text.end() + "\n")

    def on_layer(self, done: int) -> None:
        """The prefill has passed `done` layers."""
        assert self._task is not None
        self._bars.update(self._task, completed=done)

    def on_step(self, step: Step) -> None:
        """A step has ended."""
        assert self._task is not None
        if self._text:
            self._bars.stop()
            _write(self._text.put(int(step.tokens[0])))
            return
        if self._bars.tasks[self._task].description.startswith("prefill"):
            self._bars.reset(self._task, description="decode: tokens", total=self._new_tokens)
        self._bars.advance(self._task)


@contextmanager
def bar(console: Console, title: str, total: int, done: int = 0) -> Iterator[tuple[Progress, TaskID]]:
    """Show a separate progress bar, which begins at `done`."""
    with _bars(console) as bars:
        yield bars, bars.add_task(title, total=total, completed=done)


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
