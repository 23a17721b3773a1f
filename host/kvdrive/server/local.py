"""Requests that other web pages make through a browser on this machine: a server without a key answers none of them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request as HttpRequest

from kvdrive.server.errors import ApiError


def own_machine(host: str) -> bool:
    """True for addresses and names that only this machine has."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_local(http: HttpRequest) -> None:
    """Raises ApiError for a request of a page that came from elsewhere.

    Such a page sends its Origin. A name of its own that it lets point to this machine is in Host.
    """
    origin = http.headers.get("origin")
    if not own_machine(http.url.hostname or "") or (origin and not own_machine(urlsplit(origin).hostname or "")):
        raise ApiError(
            403, "this server has no key and answers this machine only: use localhost, or set a key", code="not_local"
        )
