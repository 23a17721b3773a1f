"""Drives in a folder, opened each time as a new process would, and models attached to them."""

from contextlib import ExitStack

from kvdrive.plugins.transformers import attach
from kvdrive.prefix.rates import Rates
from kvdrive.targets.emulator import Emulator

LOADING_PAYS = Rates(1, 0, 1, 0, 1e-9, 0, 0, 1, 1)  # a second for each token, and no time for reading


def drives_in(folder, count):
    """Drives whose files are in `folder`."""
    folder.mkdir(exist_ok=True)
    return [Emulator(folder / f"{number}.kv", "fast", capacity_bytes=1 << 26) for number in range(count)]


def attached_in(folder, model, drives, **options):
    """An attachment to so many drives, which it closes."""
    opened = ExitStack()
    attachment = attach(model, [opened.enter_context(drive) for drive in drives_in(folder, drives)], **options)
    attachment.close_with(opened)
    return attachment
