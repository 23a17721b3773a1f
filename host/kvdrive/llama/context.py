"""Sequences of tokens that a model computes, their K and V where llama.cpp has them: in the drive, or in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from mmap import mmap
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.llama.arrays import Arrays, Part
from kvdrive.llama.model import Model
from kvdrive.llama.state import Rows, state_of
from kvdrive.llama.structures import FLASH_ATTENTION

MOST_SEQUENCES = 256  # of llama.cpp
_END = -1  # of positions
_AT_ONCE = 512  # tokens of a call of llama_decode: ^C and progress come between two of them

Logits = NDArray[np.float32]


class Context:
    """`count` sequences of up to `room` tokens each. Each has a stream of llama.cpp's cache to itself, a session of the
    drive: all that they share is weights and calls.

    Raises UnsupportedError where K and V of the model cannot be in the drive.
    """

    def __init__(self, model: Model, room: int, count: int = 1) -> None:
        self.model = model
        self.room = room
        functions = self._functions = model.functions
        parameters = functions.llama_context_default_params()
        parameters.n_ctx = max(room, 1) * count
        parameters.n_seq_max = count
        parameters.n_batch = parameters.n_ubatch = max(min(_AT_ONCE, room), count)
        parameters.n_threads = parameters.n_threads_batch = model.settings.threads
        parameters.flash_attn_type = FLASH_ATTENTION
        self._pointer: int | None = functions.llama_init_from_model(model.pointer, parameters)
        if not self._pointer:
            raise UnsupportedError(model.reason(f"llama.cpp makes no context of {count} times {room} tokens"))
        self._memory = functions.llama_get_memory(self._pointer)
        self._arrays = Arrays(parameters.n_batch, count)
        self.sequences = [Sequence(self, number) for number in range(count)]

    def step(self, sequences: Several[Sequence], tokens: Several[Several[int]]) -> Logits:
        """Compute the next tokens of each of several sequences, one or more, in one call, or in few where they are
        many. Returns the logits behind all of them in their order, [tokens, vocabulary].

        Raises UnsupportedError for a sequence that is full, TargetError where a drive failed; all sequences are as they
        were then.
        """
        for one, own in zip(sequences, tokens, strict=True):
            one.require_room(len(own))
        parts = [Part(one.number, len(one.tokens), own) for one, own in zip(sequences, tokens, strict=True)]
        try:
            logits = np.concatenate([self.decode(call, every=True) for call in self._calls(parts)])
        except BaseException:
            for one in sequences:
                one.truncate(len(one.tokens))
            raise
        for one, own in zip(sequences, tokens, strict=True):
            one.tokens += own
        return logits

    def _calls(self, parts: Several[Part]) -> Iterator[list[Part]]:
        """The parts of each call of `decode`: as many as it takes."""
        call: list[Part] = []
        for part in parts:
            if sum(len(one.ids) for one in call) + len(part.ids) > self.tokens_at_once:
                yield call
                call = []
            call.append(part)
        yield call

    def decode(self, parts: Several[Part], *, every: bool) -> Logits:
        """Compute parts of different sequences. Returns the logits behind `every` token, or behind the last one.

        Raises TargetError; what llama.cpp has of the parts then is undefined.
        """
        batch = self._arrays.filled(parts, every)
        if status := self._functions.llama_decode(self._pointer, batch):
            raise TargetError(self.model.reason(f"llama_decode failed with {status}"))
        rows = range(batch.n_tokens) if every else [-1]
        size = self.model.vocabulary.size
        pointers = [self._functions.llama_get_logits_ith(self._pointer, row) for row in rows]
        return np.stack([np.ctypeslib.as_array(pointer, (size,)) for pointer in pointers])

    @property
    def tokens_at_once(self) -> int:
        """Tokens of a call of `decode`, at most."""
        return self._arrays.room

    def remove(self, number: int, first: int) -> bool:
        """Free the cells of a sequence from token `first` on. False where the model cannot forget a part."""
        removed: bool = self._functions.llama_memory_seq_rm(self._memory, number, first, _END)
        return removed

    def restore(self, number: int, state: mmap) -> bool:
        """Fill the cells of an empty sequence by a state. False where llama.cpp does not take all of it."""
        size = len(state)
        begin = (ctypes.c_uint8 * size).from_buffer(state)
        return bool(self._functions.llama_state_seq_set_data(self._pointer, begin, size, number) == size)

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


class Sequence:
    """One of a context's sequences. `number`: llama.cpp's. `tokens`: those that were computed. `shortened` is called
    with the number of tokens that are left when some were forgotten.
    """

    def __init__(self, context: Context, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.shortened: Callable[[int], None] = lambda count: None
        self._context = context

    @property
    def model(self) -> Model:
        """What computes it."""
        return self._context.model

    @property
    def room(self) -> int:
        """Tokens that it takes."""
        return self._context.room

    def require_room(self, count: int) -> None:
        """Raises UnsupportedError where `count` more tokens do not fit."""
        if len(self.tokens) + count > self.room:
            raise UnsupportedError(f"{len(self.tokens) + count} tokens exceed the context of {self.room}")

    def extend(
        self, ids: Several[int], on_tokens: Callable[[int], None] = lambda count: None, *, every: bool = False
    ) -> Logits:
        """Compute the tokens `ids`, at least one, behind those that are there. Returns the logits behind the last one,
        [vocabulary], or behind `every` one, [tokens, vocabulary].

        `on_tokens` is called with the number of tokens that are there. Raises UnsupportedError for more than `room`
        tokens, TargetError where a drive failed; the tokens before stay, and the sequence can go on.
        """
        self.require_room(len(ids))
        begun, found = len(self.tokens), list[Logits]()
        try:
            for start in range(0, len(ids), self._context.tokens_at_once):
                part = list(ids[start : start + self._context.tokens_at_once])
                logits = self._context.decode([Part(self.number, len(self.tokens), part)], every=every)
                found = [*found, logits] if every else [logits]
                self.tokens += part
                on_tokens(len(self.tokens))
        except BaseException:
            self.truncate(begun)
            raise
        return np.concatenate(found) if every else found[0][0]

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` tokens; all, where the model cannot forget a part."""
        count = min(count, len(self.tokens))  # what a failed call has left behind them goes
        if count == 0 or not self._context.remove(self.number, count):
            self._context.remove(self.number, 0)
            count = 0
        del self.tokens[count:]
        if count == 0 and self.model.plugin is not None:
            self.model.plugin.shorten(self.number, 0)
        self.shortened(count)

    def restore(self, tokens: Several[int], rows: Several[Rows]) -> bool:
        """Fill the cells of an empty sequence by a state without rows. False where llama.cpp does not take it: the
        sequence is empty then. `rows`: those of a token.
        """
        if not self._context.restore(self.number, state_of(rows, len(tokens), len(self._context.sequences))):
            self.truncate(0)
            return False
        self.tokens = list(tokens)
        return True
