"""The page at `/`: a chat and live figures. Files of this package; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

Handler = Callable[[HttpRequest], Awaitable[Response]]

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes() -> list[tuple[str, Handler]]:
    """Path and handler of each file. They hold no data, so they need no key."""
    folder = Path(__file__).parent / "static"
    return [(path, _serve((folder / name).read_bytes(), kind)) for path, (name, kind) in _FILES.items()]


def _serve(content: bytes, kind: str) -> Handler:
    async def handle(http: HttpRequest) -> Response:
        return Response(content, headers=_HEADERS, media_type=kind)

    return handle
