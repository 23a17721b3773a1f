"""A conversation whose K and V stay on a drive as a session; another process can continue it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache

from kvdrive.errors import InputError
from kvdrive.generation import messages as saved
from kvdrive.generation.assistant import Assistant, Drafted, assisted_steps
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Step, steps
from kvdrive.generation.messages import ASSISTANT, MESSAGES, USER, Messages
from kvdrive.generation.sampling import Sampling
from kvdrive.generation.spelling import as_held
from kvdrive.generation.text import TextStream
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.plugins.transformers import Attachment

Json = dict[str, Any]
NAME = "chat"


def as_text(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Json] = (),
    *,
    answered: bool = False,
    options: Mapping[str, Any] | None = None,
) -> str:
    """The messages as one text, made by the checkpoint's template; without a template, a line for each message.

    `tools`: what the model may call, as chat templates take them. It ends where the next answer begins; `answered`:
    with the last message. `options`: what else the template is given by name. Raises any error that the template raises
    for what it does not support.
    """
    if tokenizer.chat_template is None:
        said = "".join(f"{one['role']}:{_spaced(one['content'])}\n" for one in messages)
        return said if answered else said + f"{ASSISTANT}:"
    given: Json = dict(options or {}) | ({"tools": list(tools)} if tools else {})
    given |= {"tokenize": False, "add_generation_prompt": not answered}
    text: str = tokenizer.apply_chat_template(list(messages), **given)
    return text


def _spaced(content: str) -> str:
    """An answer that was sampled behind the colon begins with its space already."""
    return content if content.startswith(" ") else f" {content}"


def wants_special(tokenizer: Tokenizer) -> bool:
    """True if the tokenizer has to add special tokens. A template writes them itself."""
    return tokenizer.chat_template is None


class Conversation:
    """Messages in `folder`/MESSAGES, their tokens in the session NAME of the drive. `computed`: tokens of the last
    prompt
    that had to be computed because they were not on the drive. `assistant`: drafts tokens."""

    def __init__(
        self, checkpoint: Checkpoint, attachment: Attachment, folder: Path, assistant: Assistant | None = None
    ) -> None:
        self.computed = 0
        self._checkpoint, self._assistant = checkpoint, assistant
        self._store = attachment.sessions
        self._overflow = attachment.limits
        self._messages_file = folder / MESSAGES
        self._store.lookup_of().require_own(NAME)
        self.messages = saved.read(self._messages_file)

    @property
    def tokens(self) -> int:
        """Number of tokens whose K and V the drive keeps."""
        entry = self._store.index.named(NAME, "")
        return 0 if entry is None else entry.tokens

    @property
    def drafted(self) -> Drafted | None:
        """What the assistant has drafted since the process began; None without one."""
        return None if self._assistant is None else self._assistant.counters

    @property
    def unanswered(self) -> str:
        """The last message, if its answer has not ended: the process that should give it was killed; "": it has."""
        return saved.unanswered(self.messages)

    def answer(self, text: str, new_tokens: int, sampling: Sampling) -> Iterator[str]:
        """Pieces of the answer to `text`, which is saved before it begins. An unanswered message is taken back first.

        Ends early, and keeps what was said, when the iterator is closed. Raises InputError when the conversation is
        longer than the model's positions.
        """
        before = self.messages[:-1] if self.unanswered else self.messages
        messages = [*before, {"role": USER, "content": text}]
        tokenizer = self._checkpoint.tokenizer
        ids = self._checkpoint.encode(as_text(tokenizer, messages), special=wants_special(tokenizer))
        ids = as_held(tokenizer, ids, self._store.lookup_of().tokens_of(NAME))
        context = self._overflow.context or self._checkpoint.context
        if self._overflow.overflow == "error" and len(ids) + new_tokens > context:
            raise InputError(
                f"the conversation has {len(ids)} tokens and the model {context} positions: start anew with /new, or "
                "let old tokens leave (`overflow=trim`)"
            )
        self._save(messages)
        cache = self._store.cache(ids, NAME, new_tokens=new_tokens)
        self.computed = len(ids) - int(cache.get_seq_length())
        stream, said = TextStream(tokenizer), ""
        try:
            for step in self._steps(torch.tensor([ids]), cache, new_tokens, sampling):
                piece = stream.put(int(step.tokens[0]))
                said += piece
                yield piece
            said += (rest := stream.end())
            yield rest
        except (GeneratorExit, KeyboardInterrupt):
            self._save([*messages, {"role": ASSISTANT, "content": said}])
            raise
        finally:
            self._store.release(cache)
        self._save([*messages, {"role": ASSISTANT, "content": said}])

    def _steps(self, ids: torch.Tensor, cache: Cache, new_tokens: int, sampling: Sampling) -> Iterator[Step]:
        """The steps of an answer to ids [1, tokens]."""
        model, stops = self._checkpoint.model, self._checkpoint.stop_ids
        if self._assistant is not None:
            return assisted_steps(model, ids, cache, new_tokens, self._assistant, sampling=sampling, stop_ids=stops)
        context = self._overflow.context or self._checkpoint.context
        at_once = context // 4 if self._overflow.overflow == "trim" else 0
        return steps(model, ids, cache, new_tokens, sampling=sampling, stop_ids=stops, at_once=at_once)

    def start_anew(self) -> None:
        """Forget the messages, and erase their K and V from the drive."""
        self.messages = []
        self._store.stored.erase([entry.id for entry in self._store.index.entries()])
        self._messages_file.unlink(missing_ok=True)

    def _save(self, messages: Messages) -> None:
        """Save the messages: a session that is older than they are costs time, but no text is lost."""
        self.messages = messages
        saved.write(self._messages_file, messages)
