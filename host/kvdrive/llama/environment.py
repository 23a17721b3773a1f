"""Variables of the environment that ggml and the plugin read, for as long as they read them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OURS = "KVDRIVE_"
_BACKEND = "GGML_BACKEND_PATH"  # with which other programs load the plugin


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """`values` in the environment, and no other variable of the plugin. What was there before comes back."""
    names = {*values, _BACKEND, *(name for name in os.environ if name.startswith(_OURS))}
    before = {name: os.environ[name] for name in names if name in os.environ}
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)
