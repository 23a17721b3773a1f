"""Turns the body of a request into the tokens of its prompt, with bounds on memory and time.

Parsing and tokenizing happen in one thread, one request at a time, so that the event loop continues to answer.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.errors import ApiError

T = TypeVar("T")

_LARGE_BODY = 1 << 20  # bytes; the memory of larger requests is returned to the system
_SMALL_BODY = 64 << 10  # bytes; a request that is no larger is read whatever others send
_BODIES = 4  # at most so many bodies of the largest size are held at the same time, or one of each tenant
_FIRST_LOOK = 8  # characters per allowed token that are tokenized first of a long text
_SLACK = 64  # tokens that a text may lose where it was cut


class Prompts:
    """`longest`: tokens of the longest prompt. `seconds`: for parsing or tokenizing, waiting included. `tenants`: how
    many share the memory for bodies; none can take the share of another one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        longest: int,
        body_bytes: int = 16 << 20,
        seconds: float = 30,
        tenants: int = 1,
    ) -> None:
        self._tokenizer = tokenizer
        self._longest = longest
        self._most_characters = longest * max(map(len, tokenizer.get_vocab()))
        # A character takes at most 12 bytes of JSON: two escapes of 6 bytes.
        self.body_bytes = min(body_bytes, 12 * self._most_characters + (64 << 10))
        self._share = max(_BODIES // tenants, 1) * self.body_bytes
        self._held: Counter[str] = Counter()  # bytes of each tenant
        self._seconds = seconds
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    async def read(self, http: HttpRequest, tenant: str, parse: Callable[[bytes], T]) -> T:
        """Read the body and return `parse` of it. Raises ApiError for a body that is too large, or too many at once."""
        body = bytearray()
        try:
            async for chunk in http.stream():
                body += chunk
                self._held[tenant] += len(chunk)
                if len(body) > self.body_bytes:
                    raise ApiError(413, f"the body exceeds {self.body_bytes} bytes", code="body_too_large")
                if len(body) > _SMALL_BODY and self._held[tenant] > self._share:
                    raise ApiError(429, "other large requests are being read: try again in a moment", code="busy")
            return await self.run(lambda: parse(bytes(body)))
        finally:
            self._held[tenant] -= len(body)
            if len(body) > _LARGE_BODY:
                body.clear()
                self._worker.submit(_return_memory)

    async def run(self, work: Callable[[], T]) -> T:
        """Call `work` in the thread. Raises the errors of `work`, and ApiError when it is not done in time."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, work)
        try:
            return await asyncio.wait_for(future, self._seconds)
        except TimeoutError:
            text = f"the prompt could not be read within {self._seconds:g} s: other prompts were before it"
            raise ApiError(503, text, code="busy") from None

    def check_characters(self, count: int, param: str) -> None:
        """Raises ApiError for a text whose length shows that it has too many tokens."""
        if count > self._most_characters:
            text = f"the prompt has {count} characters; {self._longest} tokens, which are served, have fewer"
            raise ApiError(400, text, param=param, code="context_length_exceeded")

    def encode(self, text: str, param: str, special: bool = True) -> list[int]:
        """Tokens of `text`. A text with far too many is refused after a look at its beginning. Raises ApiError."""
        self.check_characters(len(text), param)
        size = _FIRST_LOOK * self._longest
        while size < len(text):
            if len(self._tokens(text[:size], special)) > self._longest + _SLACK:
                text = f"the prompt has more than the {self._longest} tokens that are served"
                raise ApiError(400, text, param=param, code="context_length_exceeded")
            size *= 4
        return self._tokens(text, special)

    def _tokens(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids


def _return_memory() -> None:
    """Return freed memory to the system; the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
