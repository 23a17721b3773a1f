"""What a person at the terminal waits for, shown while it takes place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

IMPORTS = "importing torch and transformers"


@contextmanager
def waiting_for(what: str, console: Console | None = None) -> Iterator[None]:
    """Show `what` and the time since its start, on a terminal only. Not for use while another display is shown."""
    console = console or Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bars.add_task(what, total=None)
        yield


@contextmanager
def progress(title: str, total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """A bar, on a terminal only, that ends when `total` is reached; its function takes how many are done."""
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bars.add_task(title, total=total)

    def on_done(done: int) -> None:
        bars.update(task, completed=done)
        if done >= total:
            bars.stop()

    bars.start()
    try:
        yield on_done
    finally:
        bars.stop()
