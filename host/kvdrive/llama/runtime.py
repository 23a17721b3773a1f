"""A GGUF file that llama.cpp computes, for the server."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, ExitStack

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.llama.context import MOST_SEQUENCES, Context
from kvdrive.llama.engine import LlamaEngine, open_engine
from kvdrive.llama.model import Model
from kvdrive.llama.opening import open_model, room_of
from kvdrive.llama.tokenizer import GgufTokenizer
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.drafts import looked_up
from kvdrive.server.jobs import Limits

_WORTH = 1 / 3  # see `Drafts`: each token of a call takes about three quarters as long as a call of one
_SPARE = 2  # extra capacity for partly filled pages and collection


class LlamaModel:
    """See `server.engine.ServedModel`. `opened` is what its `close` closes."""

    def __init__(self, model: Model, bytes_per_token: int, opened: ExitStack) -> None:
        self.loaded = model
        self.tokenizer = GgufTokenizer(model.vocabulary)
        self.stop_ids = self.tokenizer.stop_ids
        self.vocabulary = model.vocabulary.size
        self.bytes_per_token = bytes_per_token
        self._opened = opened

    def close(self) -> None:
        """See ServedModel. After a signal, no code behind the server would close the drive."""
        self._opened.close()


class LlamaRuntime:
    """See `server.engine.Runtime`. `typed`: options of a run that were given, by name. `running`: how many sequences
    run at once.

    Raises InputError, UnsupportedError, TargetError.
    """

    trims = False

    def __init__(self, config: RunConfig, typed: Collection[str], sessions: SessionOptions, running: int) -> None:
        if running > MOST_SEQUENCES:
            raise InputError(f"llama.cpp computes {MOST_SEQUENCES} sequences at a time, not {running}: ask for fewer")
        self._config, self._sessions = config, sessions
        self.drafts = looked_up(config.drafting.lookup, _WORTH)
        with ExitStack() as opened:
            model = opened.enter_context(open_model(config, typed))
            self.model = LlamaModel(model, _bytes_per_token(model), opened.pop_all())

    @property
    def name(self) -> str:
        return self.model.loaded.file.name

    @property
    def most_tokens(self) -> int | None:
        """Tokens that the drive has room for; None where that is not known."""
        assert self.model.loaded.plugin is not None, "K and V are in a drive"
        counted, size = self.model.loaded.plugin.statistics(), self.model.bytes_per_token
        capacity = counted["drive"]["capacity_bytes"] if counted else 0
        return capacity // (_SPARE * size) or None if size else None

    @property
    def context(self) -> int:
        return room_of(self.model.loaded, self._config, 0)

    def engine(self, limits: Limits) -> AbstractContextManager[LlamaEngine]:
        """See Runtime."""
        room = min(limits.tokens, self.context)
        return open_engine(self.model.loaded, room, limits, self._config, self._sessions)


def _bytes_per_token(model: Model) -> int:
    """Of the rows of K and V; 0 where they are not known."""
    assert model.plugin is not None, "K and V are in a drive"
    try:
        with Context(model, 1):  # only a context knows which rows there are
            return sum(one.bytes for one in model.plugin.rows())
    except UnsupportedError:
        return 0
