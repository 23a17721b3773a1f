"""Why no more of a conversation was found: the first token in which it differs from the nearest stored session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.prefix.chain import common_length
from kvdrive.server.engine import SessionStore
from kvdrive.server.fields import Json

_BEFORE, _FROM = 8, 16  # tokens that are shown


@dataclass(frozen=True)
class Difference:
    """`tokens`: that a prompt has in common with a stored session; the next one differs. `before`: text before it.
    `prompt`, `stored`: text from there on, of the prompt and of the session.
    """

    tokens: int
    before: str
    prompt: str
    stored: str

    def document(self) -> Json:
        """What an answer says of it."""
        return {"tokens": self.tokens, "before": self.before, "prompt": self.prompt, "stored": self.stored}


def difference(tokenizer: Tokenizer, store: SessionStore, tenant: str, prompt: Sequence[int]) -> Difference | None:
    """Where the prompt leaves the session of its tenant that has most of it, or where none has a whole block of it, the
    one that was used last; None where it goes on with all of a session, or there is none. Raises TargetError.
    """
    held = store.lookup_of(tenant).nearest(prompt)
    at = common_length(held, prompt)
    if at == min(len(held), len(prompt)):
        return None

    def text(tokens: Sequence[int]) -> str:
        return tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)

    return Difference(
        at, text(prompt[max(at - _BEFORE, 0) : at]), text(prompt[at : at + _FROM]), text(held[at : at + _FROM])
    )
