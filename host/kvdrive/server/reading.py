"""Reads the bodies of requests, and does work on them in a thread, with bounds on memory and time.

Parsing and tokenizing happen in one thread, one request at a time, so that the event loop continues to answer.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from kvdrive.server.errors import ApiError

T = TypeVar("T")

MOST_BYTES = 16 << 20  # of a body, whatever the model
_LARGE_BODY = 1 << 20  # bytes; the memory of larger requests is returned to the system
_SMALL_BODY = 64 << 10  # bytes; a request that is no larger is read whatever others send
_BODIES = 4  # at most so many bodies of the largest size are held at the same time, or one of each tenant


class Reading:
    """`body_bytes`: of the largest body. `seconds`: for work, waiting included. `tenants`: how many share the memory of
    bodies; none can take the share of another one.
    """

    def __init__(self, body_bytes: int = MOST_BYTES, seconds: float = 30, tenants: int = 1) -> None:
        self.body_bytes = body_bytes
        self._share = max(_BODIES // tenants, 1) * body_bytes
        self._held: Counter[str] = Counter()  # bytes of each tenant
        self._seconds = seconds
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    async def read(self, http: HttpRequest, tenant: str, parse: Callable[[bytes], T]) -> T:
        """Read the body and return `parse` of it. Raises ApiError for a body that is too large, or too many at once."""
        async with self.held(http, tenant) as body:
            return await self.run(lambda: parse(bytes(body)))

    @asynccontextmanager
    async def held(self, http: HttpRequest, tenant: str) -> AsyncIterator[bytearray]:
        """The body, which counts as memory of the tenant until the end. Raises ApiError as `read` does."""
        body = bytearray()
        try:
            async for chunk in http.stream():
                body += chunk
                self._held[tenant] += len(chunk)
                if len(body) > self.body_bytes:
                    raise ApiError(413, f"the body exceeds {self.body_bytes} bytes", code="body_too_large")
                if len(body) > _SMALL_BODY and self._held[tenant] > self._share:
                    raise ApiError(429, "other large requests are being read: try again in a moment", code="busy")
            yield body
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


def _return_memory() -> None:
    """Return freed memory to the system; the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
