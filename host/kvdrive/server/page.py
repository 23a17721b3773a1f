"""The page at `/`: a chat and live figures. Files of this package; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from kvdrive.server.errors import ApiError

Handler = Callable[[HttpRequest], Awaitable[Response]]

_FOLDER = Path(__file__).parent / "static"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# Trusted Types: only the one policy of `static/markup.js` makes elements of a text, which the server has rendered.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types rendered"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes() -> list[tuple[str, Handler]]:
    """Path and handler of the page and of its files. They hold no data, so they need no key."""
    page = (_FOLDER / "index.html").read_bytes()
    files = {one.name: one.read_bytes() for one in _FOLDER.iterdir() if one.suffix in _KINDS}

    async def show(http: HttpRequest) -> Response:
        return Response(page, headers=_HEADERS, media_type="text/html; charset=utf-8")

    async def send(http: HttpRequest) -> Response:
        name = http.path_params["file"]
        if name not in files:
            raise ApiError(404, f"the page has no file '{name[:100]}'", code="path_not_found")
        return Response(files[name], headers=_HEADERS, media_type=_KINDS[Path(name).suffix])

    return [("/", show), ("/page/{file}", send)]
