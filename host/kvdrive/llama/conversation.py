"""A conversation that llama.cpp computes. Its messages are kept, and its K and V where the model's cache can be."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Several
from pathlib import Path
from typing import TYPE_CHECKING

from kvdrive.errors import InputError
from kvdrive.generation import messages as saved
from kvdrive.generation.messages import ASSISTANT, USER, Messages
from kvdrive.generation.sampling import Sampling
from kvdrive.generation.spelling import respelled
from kvdrive.llama.context import Sequence
from kvdrive.llama.steps import steps
from kvdrive.llama.vocabulary import TextStream
from kvdrive.prefix.chain import common_length
from kvdrive.prefix.request import Request

if TYPE_CHECKING:
    from kvdrive.llama.kept import KeptSequence
    from kvdrive.llama.sessions import Sessions

NAME = "chat-llama"  # of the session; that of a chat with transformers is another one


class Conversation:
    """Messages in `folder`, their tokens in `sequence`. `computed`: tokens of the last prompt that were not there.

    `sessions`: keep K and V beyond the process; None: they end with it. `drafted`: always None, no tokens are drafted.
    """

    drafted = None

    def __init__(self, sequence: Sequence, folder: Path, sessions: Sessions | None = None) -> None:
        self.computed = 0
        self._sequence = sequence
        self._sessions = sessions
        self._kept: KeptSequence | None = sessions.of(sequence) if sessions else None
        self._file = folder / saved.MESSAGES
        self.messages = saved.read(self._file)

    @property
    def tokens(self) -> int:
        """Number of tokens whose K and V are in the drive."""
        return len(self._held)

    @property
    def unanswered(self) -> str:
        """The last message, if its answer has not ended; "": it has."""
        return saved.unanswered(self.messages)

    def answer(self, text: str, new_tokens: int, sampling: Sampling) -> Iterator[str]:
        """Pieces of the answer to `text`, which is saved before it begins. An unanswered message is taken back first.

        Ends early, and keeps what was said, when the iterator is closed. Raises InputError when the conversation is
        longer than the context, TargetError.
        """
        sequence, vocabulary = self._sequence, self._sequence.model.vocabulary
        before = self.messages[:-1] if self.unanswered else self.messages
        messages = [*before, {"role": USER, "content": text}]
        ids = vocabulary.encode(vocabulary.chat_text(messages), special=not vocabulary.template)
        ids = respelled(self._pieces, ids, self._held)
        if len(ids) + new_tokens > sequence.room:
            raise InputError(
                f"the conversation has {len(ids)} tokens, the answer comes to {new_tokens}, and the context holds "
                f"{sequence.room}: start anew with /new, or give a larger `context`"
            )
        self._save(messages)
        if self._kept and not sequence.tokens:
            self._kept.resume(Request(tuple(ids), NAME, new_tokens))
        sequence.truncate(common_length(ids[:-1], sequence.tokens))
        self.computed = len(ids) - len(sequence.tokens)
        stream, said = TextStream(vocabulary), ""
        try:
            for token in steps(sequence, ids[len(sequence.tokens) :], new_tokens, sampling):
                piece = stream.put(token)
                said += piece
                yield piece
            said += (rest := stream.end())
            yield rest
        except (GeneratorExit, KeyboardInterrupt):
            self._save([*messages, {"role": ASSISTANT, "content": said}])
            raise
        finally:
            if self._kept:
                self._kept.keep(NAME)
        self._save([*messages, {"role": ASSISTANT, "content": said}])

    def start_anew(self) -> None:
        """Forget the messages, and their K and V."""
        self.messages = []
        self._sequence.truncate(0)
        if self._sessions:
            self._sessions.forget()
        self._file.unlink(missing_ok=True)

    @property
    def _held(self) -> list[int]:
        """The tokens that are there, or those that an earlier process has kept."""
        if self._sequence.tokens or self._sessions is None:
            return self._sequence.tokens
        return self._sessions.store.lookup_of("").tokens_of(NAME)

    def _save(self, messages: Messages) -> None:
        self.messages = messages
        saved.write(self._file, messages)

    def _pieces(self, ids: Several[int]) -> list[str]:
        """What each token adds to the text, a byte as a letter; special ones, which add nothing, their number."""
        vocabulary = self._sequence.model.vocabulary
        return [vocabulary.piece(token).decode("latin-1") or f"\0{token}\0" for token in ids]
