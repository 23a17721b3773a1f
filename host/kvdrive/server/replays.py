"""The tokens of earlier answers, which later prompts of the same conversation begin with, however a client spells them.

A client sends an answer back as messages: calls of tools with other white space or order of keys, without thoughts.
What the template makes of them may be other tokens than the model wrote, and their K and V would not be found. So the
tokens are kept here, under a hash of the conversation that ends with the answer, and stand in the next prompt in its
place.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvdrive.generation import conversation
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.calls import json_value
from kvdrive.server.fields import Json
from kvdrive.server.tool_formats import AnyFormat, Format

_MOST_ANSWERS, _MOST_TOKENS = 1000, 4 << 20  # of a tenant; 4 bytes a token
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_ANSWER = "assistant"


@dataclass
class Kept:
    """The answers of a tenant, by their conversations; `tokens`: of all of them."""

    answers: OrderedDict[bytes, array[int]] = field(default_factory=OrderedDict)
    tokens: int = 0


class Replays:
    """Keeps prompts with their answers, and finds the longest one that a conversation goes on with. In memory only.

    `find` and `keep` may be called from different threads.
    """

    def __init__(self, most_answers: int = _MOST_ANSWERS, most_tokens: int = _MOST_TOKENS) -> None:
        self._most_answers, self._most_tokens = most_answers, most_tokens
        self._kept: dict[str, Kept] = {}

    def keep(self, tenant: str, conversation: bytes, tokens: Sequence[int]) -> None:
        """Keep the tokens of a prompt and its answer. The least recently kept ones that have no room are dropped."""
        own = self._kept.setdefault(tenant, Kept())
        own.tokens += len(tokens) - len(own.answers.pop(conversation, ()))
        own.answers[conversation] = array("I", tokens)
        while len(own.answers) > self._most_answers or own.tokens > self._most_tokens:
            own.tokens -= len(own.answers.popitem(last=False)[1])

    def find(self, tenant: str, chain: Sequence[bytes]) -> tuple[int, list[int]] | None:
        """The number of messages up to the last answer that is kept, and the tokens up to its end. `chain`: see
        `chain_of`.
        """
        answers = self._kept.get(tenant, Kept()).answers
        for count in range(len(chain) - 1, 0, -1):
            if (found := answers.get(chain[count])) is not None:
                return count, found.tolist()
        return None


def chain_of(messages: Sequence[Json], tools: Sequence[Json]) -> list[bytes]:
    """Hashes of the first 0, 1, 2, ... messages, as templates take them, with the tools."""
    chain = [hashlib.sha256(_canonical(list(tools))).digest()]
    for one in messages:
        chain.append(link(chain[-1], one))
    return chain


def link(before: bytes, message: Json) -> bytes:
    """The hash of a conversation whose last message is `message`; `before`: of those before it.

    Answers that differ in the order of keys, white space around them or thoughts have the same hash.
    """
    if message["role"] == _ANSWER:
        message = message | {"content": _THOUGHTS.sub("", message["content"]).strip()}
    return hashlib.sha256(before + _canonical(message)).digest()


def as_message(said: str, calls: Sequence[tuple[str, str, str]]) -> Json:
    """An answer as templates take it; `calls`: id, name and arguments of each."""
    found: Json = {"role": _ANSWER, "content": said}
    if calls:
        found["tool_calls"] = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": json_value(arguments)}}
            for number, name, arguments in calls
        ]
    return found


def rest_of(
    tokenizer: Tokenizer,
    how: AnyFormat | None,
    messages: Sequence[Json],
    tools: Sequence[Json],
    count: int,
    text: str,
) -> str | None:
    """What stands behind the answer that is message `count` - 1, in the text of all messages; None: it is not clear.

    The end of its turn is part of it.
    """
    before = conversation.as_text(tokenizer, messages[: count - 1], tools)
    through = conversation.as_text(tokenizer, messages[:count], tools, answered=True)
    if not (text.startswith(through) and through.startswith(before)):
        return None
    answer, end_of_call = through[len(before) :], how.end if isinstance(how, Format) else ""
    ends = [at for one in _special(tokenizer) - {end_of_call} if (at := answer.rfind(one)) >= 0]
    ends = [at for at in ends if any(answer[at:].strip() == one for one in _special(tokenizer))]
    if ends:
        return answer[min(ends) :] + text[len(through) :]
    if end_of_call and end_of_call in answer:
        return answer[answer.rfind(end_of_call) + len(end_of_call) :] + text[len(through) :]
    return None


def _special(tokenizer: Tokenizer) -> set[str]:
    """Texts of the tokens that stand for no text."""
    added = {str(one) for one in tokenizer.added_tokens_decoder.values() if one.special}
    return added | set(tokenizer.all_special_tokens)


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
