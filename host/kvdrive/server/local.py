"""Requests that other web pages make through a browser on this machine: a server without a key answers none of them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.requests import Request as HttpRequest

from kvdrive.errors import InputError
from kvdrive.server.errors import ApiError

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]+|\[(?P<address>[0-9A-Fa-f:.]+)\])(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>.+)")


def own_machine(host: str) -> bool:
    """True for addresses and names that only this machine has."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_origin(origin: str) -> None:
    """Raises InputError for what is not the origin of a page, as browsers send it."""
    found = _ORIGIN.fullmatch(origin)
    if found is None or _name(found["host"]) is None or origin != origin.lower():
        raise InputError(f"{origin} is no origin of pages: write it as http://NAME:PORT or https://NAME")


def check_local(http: HttpRequest, allowed: Collection[str] = ()) -> None:
    """Raises ApiError for a request of a page that came from elsewhere, unless its origin is `allowed`.

    Such a page sends its Origin. A name of its own that it lets point to this machine is in Host. Whatever is not
    surely this machine's is refused.
    """
    hosts, origins = http.headers.getlist("host"), http.headers.getlist("origin")
    if len(hosts) != 1 or (host := _name(hosts[0])) is None:
        raise ApiError(400, "the header Host must be a name or an address, and a port", code="invalid_request")
    if not own_machine(host) or not all(one in allowed or _is_own(one) for one in origins):
        raise ApiError(
            403, "this server has no key and answers this machine only: use localhost, or set a key", code="not_local"
        )


def _is_own(origin: str) -> bool:
    found = _ORIGIN.fullmatch(origin)
    return found is not None and own_machine(_name(found["host"]) or "")


def _name(host: str) -> str | None:
    """The name or address in NAME[:PORT]; None for anything else."""
    found = _HOST.fullmatch(host)
    return found and (found["address"] or found["name"].lower())
