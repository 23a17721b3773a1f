"""What a measurement begins with: the model, and drives with room for its questions."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from rich.console import Console

from kvdrive.config.run import RunConfig
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.targets.opening import require_space
from kvdrive.targets.options import DriveOptions
from kvdrive.waiting import waiting_for
from kvdrive.weights.opening import load_from


def loaded(config: RunConfig, console: Console | None) -> Checkpoint:
    """The model of a run, which the caller closes; what takes time is said on `console`. Raises KvdriveError."""
    with waiting_for(f"loading {config.model.model}", console):
        return load_from(config)


def drives_for(checkpoint: Checkpoint, drives: DriveOptions, tokens: int) -> DriveOptions:
    """The options with room for twice the K and V of `tokens` tokens; torch gets as many threads. Raises InputError."""
    room = 2 * checkpoint.shape.bytes_per_token * tokens
    threads = drives.threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    found = replace(
        drives,
        threads=threads,
        capacity_bytes=max(drives.capacity_bytes, room),
        needed_bytes=room,
        group=checkpoint.shape.group,
    )
    require_space(found)
    return found
