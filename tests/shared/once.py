# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays that are computed once for the same arguments.

Several engines, instruction sets and drives are compared with the same result of the golden model.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

MOST = 2000  # results that are kept
Function = TypeVar("Function", bound=Callable[..., Any])


def _digest(arguments: object) -> bytes:
    """What tells arguments apart: the bytes of arrays, the text of everything else."""
    found = hashlib.sha256()
    parts: list[object] = [arguments]
    while parts:
        one = parts.pop()
        if isinstance(one, tuple | list):
            found.update(f"{type(one).__name__} {len(one)};".encode())
            parts += reversed(one)
        elif isinstance(one, np.ndarray):
            found.update(f"{one.dtype.str} {one.shape};".encode())
            found.update(np.ascontiguousarray(one).reshape(-1).view(np.uint8).data)
        else:
            assert one is None or isinstance(one, bool | int | float | str | np.generic), type(one)
            found.update(f"{type(one).__name__} {one!r};".encode())
    return found.digest()


def once(function: Function) -> Function:
    """`function`, which has no state. Each caller gets a copy of the result. Its arguments: arrays, numbers, text."""
    kept: dict[bytes, Any] = {}

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        key = _digest((arguments, *sorted(named.items())))
        if key not in kept:
            if len(kept) >= MOST:
                kept.pop(next(iter(kept)))
            kept[key] = function(*arguments, **named)
        return copy.deepcopy(kept[key])

    return wrapped  # type: ignore[return-value]
