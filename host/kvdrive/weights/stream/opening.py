"""Checkpoints whose weights are all on flash are loaded."""

from __future__ import annotations

from kvdrive.generation import checkpoints, places
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.weights.formats import DTYPES
from kvdrive.weights.loaded import Named, complete
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.stream.model import StreamedWeights


def load_stream(name: str, dtype: str, options: FlashOptions) -> Checkpoint:
    """A checkpoint whose layers are read from its own files in each call, which `Checkpoint.close` closes.

    `name` and `dtype` as in `checkpoints.load`. Raises InputError, UnsupportedError, TargetError.
    """
    checkpoints.quiet()
    path = places.find(name)
    config = checkpoints.read_config(path)
    computed = None if dtype == "auto" else DTYPES[dtype]
    found = StreamedWeights(path, config, computed, options.weights_memory)
    try:
        return complete(Named(name, path), found)
    except BaseException:
        found.close()
        raise
