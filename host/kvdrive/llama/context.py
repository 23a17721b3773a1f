"""One sequence of tokens that a model computes, its K and V where llama.cpp has them: in the drive, or in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from mmap import mmap
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.llama.model import Model
from kvdrive.llama.structures import FLASH_ATTENTION, Batch

_SEQUENCE = 0  # llama.cpp's number of our only one
_END = -1  # of positions
_AT_ONCE = 512  # tokens of a call of llama_decode: ^C and progress come between two of them

Logits = NDArray[np.float32]  # [vocabulary]


class Context:
    """A sequence of up to `room` tokens. `tokens`: those that were computed. `shortened` is called with the number of
    tokens that are left when some were forgotten.

    Raises UnsupportedError where K and V of the model cannot be in the drive.
    """

    def __init__(self, model: Model, room: int) -> None:
        self.model = model
        self.room = room
        self.tokens: list[int] = []
        self.shortened: Callable[[int], None] = lambda count: None
        functions = self._functions = model.functions
        parameters = functions.llama_context_default_params()
        parameters.n_ctx = max(room, 1)
        parameters.n_batch = parameters.n_ubatch = min(_AT_ONCE, parameters.n_ctx)
        parameters.n_threads = parameters.n_threads_batch = model.settings.threads
        parameters.flash_attn_type = FLASH_ATTENTION
        self._pointer: int | None = functions.llama_init_from_model(model.pointer, parameters)
        if not self._pointer:
            raise UnsupportedError(model.reason(f"llama.cpp makes no context of {room} tokens"))
        self._memory = functions.llama_get_memory(self._pointer)
        self._batch = _Arrays(parameters.n_batch)

    def extend(self, ids: Sequence[int], on_tokens: Callable[[int], None] = lambda count: None) -> Logits:
        """Compute the tokens `ids`, at least one, behind those that are there. Returns the logits behind the last one.

        `on_tokens` is called with the number of tokens that are there. Raises UnsupportedError for more than `room`
        tokens, TargetError where a drive failed; the tokens before stay, and the sequence can go on.
        """
        if len(self.tokens) + len(ids) > self.room:
            raise UnsupportedError(f"{len(self.tokens) + len(ids)} tokens exceed the context of {self.room}")
        begun = len(self.tokens)
        try:
            for start in range(0, len(ids), self._batch.room):
                part = ids[start : start + self._batch.room]
                self._compute(part)
                self.tokens += part
                on_tokens(len(self.tokens))
        except BaseException:
            self.truncate(begun)
            raise
        row = self._functions.llama_get_logits_ith(self._pointer, -1)
        return np.ctypeslib.as_array(row, (self.model.vocabulary.size,)).copy()

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` tokens; all, where the model cannot forget a part."""
        count = min(count, len(self.tokens))  # what a failed call has left behind them goes
        if count == 0 or not self._functions.llama_memory_seq_rm(self._memory, _SEQUENCE, count, _END):
            self._functions.llama_memory_clear(self._memory, True)
            count = 0
        del self.tokens[count:]
        self.shortened(count)

    def restore(self, tokens: Sequence[int], state: mmap) -> bool:
        """Fill the cells of an empty sequence by a state (`state.state_of`). False where llama.cpp does not take it:
        the sequence is empty then.
        """
        size = len(state)
        begin = (ctypes.c_uint8 * size).from_buffer(state)
        read = self._functions.llama_state_seq_set_data(self._pointer, begin, size, _SEQUENCE)
        if read != size:
            self.truncate(0)
            return False
        self.tokens = list(tokens)
        return True

    def close(self) -> None:
        """Release it; K and V are gone."""
        if self._pointer:
            self._functions.llama_free(self._pointer)
        self._pointer = None

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _compute(self, part: Sequence[int]) -> None:
        status = self._functions.llama_decode(self._pointer, self._batch.filled(part, len(self.tokens)))
        if status:
            raise TargetError(self.model.reason(f"llama_decode failed with {status}"))


class _Arrays:
    """What a llama_batch of up to `room` tokens points at."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._token = (ctypes.c_int32 * room)()
        self._position = (ctypes.c_int32 * room)()
        self._count = (ctypes.c_int32 * room)(*[1] * room)
        self._number = (ctypes.c_int32 * 1)(_SEQUENCE)
        first = ctypes.cast(self._number, ctypes.POINTER(ctypes.c_int32))
        self._sequence = (ctypes.POINTER(ctypes.c_int32) * room)(*[first] * room)
        self._wanted = (ctypes.c_int8 * room)()

    def filled(self, ids: Sequence[int], position: int) -> Batch:
        """A batch of tokens from `position` on, with the logits of the last one. It is valid until the next call."""
        count = len(ids)
        self._token[:count] = list(ids)
        self._position[:count] = list(range(position, position + count))
        ctypes.memset(self._wanted, 0, count)
        self._wanted[count - 1] = 1
        return Batch(count, self._token, None, self._position, self._count, self._sequence, self._wanted)
