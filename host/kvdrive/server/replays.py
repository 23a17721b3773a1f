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
from kvdrive.server.messages import THOUGHT_IN_TEMPLATES
from kvdrive.server.tool_formats import AnyFormat, Format

_MOST_ANSWERS, _MOST_TOKENS = 1000, 4 << 20  # of a tenant; 4 bytes a token
_THOUGHTS = re.compile(r"<think>.*?</think>\s*|\[THINK\].*?\[/THINK\]\s*", re.DOTALL)
_BEGUN = re.compile(r"(<think>|\[THINK\])\s*\Z")
_ANSWER = "assistant"
_MARK = "c5f0a9d2e7b14638"  # stands for an answer in a text that a template writes


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
        message = {name: value for name, value in message.items() if name not in THOUGHT_IN_TEMPLATES}
        message["content"] = _thoughtless(message["content"])
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


@dataclass(frozen=True)
class Parts:
    """A conversation and its `text`, made by the model's template. `how`: the format of its calls. `options`: see
    `conversation.as_text`.
    """

    how: AnyFormat | None
    messages: Sequence[Json]
    tools: Sequence[Json]
    text: str
    options: Json = field(default_factory=dict)

    @property
    def end_of_call(self) -> str:
        """What stands behind a call; "": that is not known."""
        return self.how.end if isinstance(self.how, Format) else ""

    def written(self, tokenizer: Tokenizer, messages: Sequence[Json], *, answered: bool = False) -> str:
        """Messages as text."""
        return conversation.as_text(tokenizer, messages, self.tools, answered=answered, options=self.options)


def rest_of(tokenizer: Tokenizer, parts: Parts, count: int) -> str | None:
    """What stands behind the answer that is message `count` - 1, in the text of all messages; None: it is not clear.

    The end of its turn is part of it.
    """
    text, end_of_call = parts.text, parts.end_of_call
    before = parts.written(tokenizer, parts.messages[: count - 1])
    through = parts.written(tokenizer, parts.messages[:count], answered=True)
    if not (text.startswith(through) and through.startswith(before)):
        return _behind(tokenizer, parts, count, before)
    answer = through[len(before) :]
    ends = [at for one in _special(tokenizer) - {end_of_call} if (at := answer.rfind(one)) >= 0]
    ends = [at for at in ends if any(answer[at:].strip() == one for one in _special(tokenizer))]
    if ends:
        return answer[min(ends) :] + text[len(through) :]
    if end_of_call and end_of_call in answer:
        return answer[answer.rfind(end_of_call) + len(end_of_call) :] + text[len(through) :]
    return None


def _behind(tokenizer: Tokenizer, parts: Parts, count: int, before: str) -> str | None:
    """The same for a template that writes an answer in another way when more follows: without its thoughts, or with
    another end. A mark stands in the answer, in place of what it says, or of the name in its last call.

    `before`: the prompt of the answer.
    """
    messages = parts.messages
    answer = {name: value for name, value in messages[count - 1].items() if name not in THOUGHT_IN_TEMPLATES}
    calls = answer.get("tool_calls")
    if calls and not parts.end_of_call:
        return None
    if calls:
        last = calls[-1] | {"function": calls[-1]["function"] | {"name": _MARK}}
        answer |= {"tool_calls": [*calls[:-1], last], "content": _thoughtless(answer["content"])}
    else:
        answer["content"] = _MARK
    text = parts.written(tokenizer, [*messages[: count - 1], answer, *messages[count:]])
    head, mark, rest = text.partition(_MARK)
    if not mark or _MARK in rest or not _thoughtless(head).startswith(_thoughtless(before)):
        return None
    if calls:
        _, end, rest = rest.partition(parts.end_of_call)
        return rest if end else None
    return rest


def _thoughtless(text: str) -> str:
    """A text without thoughts, closed or only begun, and white space around it."""
    return _BEGUN.sub("", _THOUGHTS.sub("", text)).strip()


def _special(tokenizer: Tokenizer) -> set[str]:
    """Texts of the tokens that stand for no text."""
    added = {str(one) for one in tokenizer.added_tokens_decoder.values() if one.special}
    return added | set(tokenizer.all_special_tokens)


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
