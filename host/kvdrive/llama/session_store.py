"""Opens the sessions that are kept on the plugin's drive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kvdrive import abi
from kvdrive.config.run import RunConfig
from kvdrive.kvcache import formats
from kvdrive.kvcache.backing import Backing
from kvdrive.llama import libraries
from kvdrive.llama.context import Context
from kvdrive.llama.identity import label_of
from kvdrive.llama.kept_store import KeptStore
from kvdrive.llama.sessions import Sessions
from kvdrive.llama.store_context import open_store
from kvdrive.llama.target import PluginDrive
from kvdrive.nvme.rows import joined
from kvdrive.prefix.options import SessionOptions


@contextmanager
def open_sessions(
    context: Context,
    config: RunConfig,
    how: SessionOptions = SessionOptions(),  # noqa: B008 (it never changes)
) -> Iterator[Sessions]:
    """The sessions on the drive of `context`, an empty one. Raises InputError, UnsupportedError, TargetError."""
    model = context.model
    assert model.plugin is not None, "K and V are in a drive"
    assert model.settings.drive is not None
    rows = model.plugin.rows()
    place = model.settings.drive["KVDRIVE_DRIVE"]
    stored_as = formats.named(config.placement.kv_format)
    options = int(abi.AppendOption.APPEND_GROUPS) if config.policy.attention == "groups" else 0
    target = PluginDrive(model.plugin, place, exclusive=not config.target.target.endswith(".sock"))
    with ExitStack() as opened:
        backing = Backing([target], 1, label_of(model.file, libraries.find(), config), stored_as=stored_as)
        opened.callback(backing.close)
        store = open_store(backing, how, opened)
        yield Sessions(context, KeptStore(model.plugin, rows, backing, store, joined(options, stored_as)))
