"""Users who ask a server at the same time, and what each of them sees."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bench.rounds import Counts
from bench.server.servers import Running
from kvdrive.errors import InputError
from kvdrive.tree import ROOT

_SECONDS = 600  # the longest wait for a piece of an answer
Fields = dict[str, Any]


@dataclass
class Seen:
    """An answer that came piece by piece. `first`: seconds from the request to its first text; `usage`: its counts;
    `timings`: those of llama-server.
    """

    first: float = 0
    text: str = ""
    usage: Fields = field(default_factory=dict)
    timings: Fields = field(default_factory=dict)

    @property
    def cached(self) -> int:
        """Tokens of the prompt that the server had already. `transformers serve`, which says nothing of them, has none:
        it begins each answer with an empty cache.
        """
        details = self.usage.get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or self.timings.get("cache_n") or 0)


class Prompts:
    """Texts of the project's own pages, each of `characters`; no two begin alike."""

    def __init__(self, characters: int) -> None:
        pages = sorted((ROOT / "docs").rglob("*.md"))
        self._text = " ".join("\n".join(page.read_text() for page in pages).split())
        self._characters = characters
        self._number = 0

    def take(self, count: int) -> list[str]:
        """The next texts."""
        first, self._number = self._number, self._number + count
        return [f"{number}. {self._part(number)}" for number in range(first, first + count)]

    def _part(self, number: int) -> str:
        begin = number * self._characters % (len(self._text) - self._characters)
        return self._text[begin : begin + self._characters]


def ask(server: Running, path: str, **fields: Any) -> Seen:
    """One request, whose answer is streamed. Raises InputError for a refusal."""
    body = {"model": server.model, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}} | fields
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)
    seen, event = Seen(), ""
    try:
        began = time.perf_counter()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise InputError(f"{path} was answered with {answer.status}: {answer.read().decode()[:500]}")
        for line in answer:
            event = line.decode().removeprefix("data: ").strip()
            if event and event != "[DONE]":
                _note(seen, json.loads(event), time.perf_counter() - began)
    finally:
        connection.close()
    if not seen.usage:
        raise InputError(f"the answer of {path} ended early: {event[:500]}")
    return seen


def _note(seen: Seen, event: Fields, seconds: float) -> None:
    """What an event of a stream adds."""
    for choice in event.get("choices", ()):
        text = choice.get("text") or choice.get("delta", {}).get("content") or ""
        seen.first = seen.first or (seconds if text else 0)
        seen.text += text
    seen.usage = event.get("usage") or seen.usage
    seen.timings = event.get("timings") or seen.timings


def together(server: Running, prompts: Sequence[str], tokens: int, **fields: Any) -> Counts:
    """A user for each prompt, all at once, up to `tokens` new tokens each. `first`: the median of the users."""

    def one(prompt: str) -> Seen:
        return ask(server, "/v1/completions", prompt=prompt, max_tokens=tokens, **fields)

    with ThreadPoolExecutor(len(prompts)) as users:
        began = time.perf_counter()
        seen = list(users.map(one, prompts))
        seconds = time.perf_counter() - began
    count = sum(one.usage["completion_tokens"] for one in seen)
    return {
        "seconds": seconds,
        "first": statistics.median(one.first for one in seen),
        "tokens": count,
        "second_per_token": seconds / count,
        "prompt": statistics.median(one.usage["prompt_tokens"] for one in seen),
    }
