"""Where the finished sequences of an attached model are stored: in the prefix store, or in this process."""

from __future__ import annotations

import logging

from kvdrive.config.run import RunConfig
from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import Attachment
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.resume import Costs
from kvdrive.server.idle import IdleSequences
from kvdrive.server.prefix_cache import PrefixCache

log = logging.getLogger(__name__)
Finished = IdleSequences | PrefixCache


def finished_in(
    checkpoint: Checkpoint, attachment: Attachment, config: RunConfig, idle: int, sessions: SessionOptions | None
) -> Finished:
    """The store. `sessions`: how they are stored beyond the process; None: they are not."""
    if idle and sessions is not None:
        try:
            attachment.open_sessions(sessions)
        except UnsupportedError as error:
            log.warning("sessions do not survive the server: %s", error)
        else:
            return PrefixCache(attachment.sessions, checkpoint.shape.bytes_per_token)
    costs = Costs(None, "", attachment.rates.resuming)
    if idle and config.placement.active == "drive":  # what is in memory is always used
        try:
            costs.measure()  # so that no request waits for it
        except (CommandError, TargetError) as error:
            log.warning("rates cannot be measured, so sequences continue where they are: %s", error)
    return IdleSequences(idle, attachment.cache, costs)
