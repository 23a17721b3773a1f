"""The keys that clients send, and whose they are. What one tenant stores, another one neither finds nor changes."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.server.errors import ApiError

_TENANT = r"[A-Za-z0-9_.-]{1,128}"
_KEY = r"[!-~]+"  # what a header can hold without a blank


class Tenants:
    """`keys`: (key, tenant) of each key; without any, everybody is the tenant `default`."""

    def __init__(self, keys: Iterable[tuple[str, str]] = (), default: str = "") -> None:
        self._keys = [(key.encode("utf-8", "surrogateescape"), tenant) for key, tenant in keys]
        self.default = default

    @property
    def asks(self) -> bool:
        """True if clients need a key."""
        return bool(self._keys)

    @property
    def count(self) -> int:
        """How many there are."""
        return len({tenant for _, tenant in self._keys}) or 1

    def of(self, authorization: str) -> str:
        """The tenant of a request with this header. Raises ApiError for a wrong key, or none."""
        if not self._keys:
            return self.default
        scheme, _, sent = authorization.partition(" ")
        found = [tenant for key, tenant in self._keys if hmac.compare_digest(sent.strip().encode("latin-1"), key)]
        if scheme.lower() != "bearer" or not found:
            raise ApiError(401, "wrong or missing API key: send 'Authorization: Bearer KEY'", code="invalid_api_key")
        return found[0]


def read_keys(path: Path) -> list[tuple[str, str]]:
    """(key, tenant) of each line `TENANT KEY` of a file; not of blank lines and lines with #. Raises InputError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no UTF-8 text: write a line TENANT KEY for each key") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not re.fullmatch(_TENANT, words[0]) or not re.fullmatch(_KEY, words[1]):
            raise InputError(
                f"{path}, line {number}: write TENANT KEY, the tenant in letters, digits, '_', '.' and '-', the key in "
                "ASCII without blanks"
            )
        if keys.setdefault(words[1], words[0]) != words[0]:
            raise InputError(f"{path}, line {number}: this key has another tenant already: give each tenant its own")
    if not keys:
        raise InputError(f"{path} has no key: write a line TENANT KEY for each key")
    return list(keys.items())
