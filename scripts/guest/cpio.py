"""Archives that the kernel unpacks at boot (format "newc"); archives one after the other become one tree."""

from __future__ import annotations

import stat
from collections.abc import Mapping


def archive(files: Mapping[str, tuple[bytes, bool]]) -> bytes:
    """path -> (contents, executable); folders are made from the paths."""
    out = bytearray()
    folders: list[str] = []
    for path in files:
        parts = path.split("/")[:-1]
        folders += ["/".join(parts[: i + 1]) for i in range(len(parts))]
    number = 0
    for folder in dict.fromkeys(folders):
        number += 1
        out += entry(folder, b"", stat.S_IFDIR | 0o755, number)
    for path, (data, executable) in files.items():
        number += 1
        out += entry(path, data, stat.S_IFREG | (0o755 if executable else 0o644), number)
    out += entry("TRAILER!!!", b"", 0, 0)
    return bytes(out) + bytes(-len(out) % 512)


def entry(path: str, data: bytes, mode: int, number: int) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % value for value in fields) + name
    head += bytes(-len(head) % 4)
    return head + data + bytes(-len(data) % 4)
