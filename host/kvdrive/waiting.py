"""What a person at the terminal waits for, shown while it takes place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

IMPORTS = "importing torch and transformers"


@contextmanager
def waiting_for(what: str, console: Console | None = None) -> Iterator[None]:
    """Show `what` and the time since its start, on a terminal only. Not for use while another display is shown."""
    console = console or Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bars.add_task(what, total=None)
        yield
