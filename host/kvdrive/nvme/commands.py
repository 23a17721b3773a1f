"""Builds commands from their fields. No other module of the host fills submission queue entries.

Layouts, namespaces and status codes are those of abi/abi.toml. Data pointers stay 0: a target that needs them (rings,
passthrough) sets them itself, and so it does with the command identifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive._native import crc32c, query_data
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.entries import EntryLayout
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import Bytes as Bytes
from kvdrive.nvme.rows import Halves as Halves
from kvdrive.nvme.rows import bytes_of_row, command_options, decoded, encoded, format_of
from kvdrive.nvme.wire import KvRead, RowFormat, SessionRemove

Given = ParamSpec("Given")
MAX_TOKENS_PER_APPEND = 0xFFFF
_PLAIN = EntryLayout(abi.Sqe)
_APPEND = EntryLayout(abi.KvAppend)
_READ = EntryLayout(KvRead)
_TRIM = EntryLayout(abi.SessionTrim)
_REMOVE = EntryLayout(SessionRemove)
_FORK = EntryLayout(abi.SessionFork)
_SUBMIT = EntryLayout(abi.AttnSubmit)
_FETCH = EntryLayout(abi.AttnFetch)
_HALVES, _SINGLES = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class Command:
    """One submission queue entry (64 bytes, identifier 0), its data to the drive, and how many bytes may come back."""

    entry: bytes
    data: Bytes | None = None
    room: int = 0

    @property
    def opcode(self) -> int:
        """Opcode of the entry."""
        return self.entry[0]

    def encode(self, identifier: int) -> bytes:
        """The entry with a command identifier (0 to 65535)."""
        return self.entry[:2] + identifier.to_bytes(2, "little") + self.entry[4:]


def flush() -> Command:
    """FLUSH: everything that was written before is durable when it completes."""
    return Command(_entry(_PLAIN, abi.Opcode.FLUSH, abi.Namespace.NVM, {}))


def kv_append(
    session: int,
    layer: int,
    head: int,
    kind: abi.KvKind,
    first_token: int,
    sequence: int,
    rows: Halves,
    options: int = 0,
) -> Command:
    """KV_APPEND: K or V rows [heads, tokens, d] float16 of consecutive heads, from token `first_token` on.

    `sequence` counts the appends of the session from 0; `options`: bits of abi.AppendOption, and the format in
    which the command carries the rows (`rows.joined`). At most MAX_TOKENS_PER_APPEND tokens.
    """
    heads, tokens, head_dim = rows.shape
    stored_as = format_of(options)
    data = _payload(encoded(rows, stored_as))
    fields = {
        "session": session,
        "layer": layer,
        "head": head,
        "heads": heads,
        "first_token": first_token,
        "tokens": tokens,
        "kind": kind,
        "type": stored_as,
        "row_bytes": bytes_of_row(stored_as, head_dim),
        "sequence": sequence,
        "crc32c": crc32c(data),
        "options": command_options(options),
    }
    return Command(_entry(_APPEND, abi.Opcode.KV_APPEND, abi.Namespace.NVM, fields), data)


def kv_read(
    session: int,
    layer: int,
    head: int,
    kind: abi.KvKind,
    first_token: int,
    shape: tuple[int, int, int],
    stored_as: RowFormat = RowFormat.BINARY16,
) -> Command:
    """KV_READ: rows of `shape` (heads, tokens, d) as they were appended; `stored_rows` reads the completion.

    A group that does not verify fails the command with UNRECOVERED_READ.
    """
    heads, tokens, head_dim = shape
    fields = {
        "session": session,
        "layer": layer,
        "head": head,
        "heads": heads,
        "first_token": first_token,
        "tokens": tokens,
        "kind": kind,
        "row_bytes": bytes_of_row(stored_as, head_dim),
    }
    room = heads * tokens * fields["row_bytes"]
    return Command(_entry(_READ, abi.Opcode.KV_READ, abi.Namespace.NVM, fields), room=room)


def stored_rows(done: Completion, shape: tuple[int, int, int], stored_as: RowFormat = RowFormat.BINARY16) -> Halves:
    """Rows [heads, tokens, d] of a successful KV_READ. Raises CommandError when the data were damaged on their way."""
    return decoded(stored_bytes(done, shape[:2]), stored_as, shape[2])


def stored_bytes(done: Completion, shape: tuple[int, int]) -> Bytes:
    """The same as they are stored: uint8 [heads, tokens, bytes of a row]."""
    if crc32c(done.data) != done.result:
        raise CommandError(abi.Opcode.KV_READ, abi.NvmeStatus.CRC_MISMATCH, 0, retry=True)
    return done.data.reshape(*shape, -1)


def session_trim(session: int, from_token: int) -> Command:
    """SESSION_TRIM: remove the tokens from `from_token` on, in every layer; 0 removes the session."""
    fields = {"session": session, "from_token": from_token}
    return Command(_entry(_TRIM, abi.Opcode.SESSION_TRIM, abi.Namespace.NVM, fields))


def session_erase(session: int, from_token: int = 0) -> Command:
    """SESSION_ERASE: as `session_trim`; when it completes, no byte of the removed tokens is in flash or journal.

    Data shared with other sessions stay. The result is the number of flash blocks that were erased for it.
    """
    fields = {"session": session, "from_token": from_token}
    return Command(_entry(_TRIM, abi.Opcode.SESSION_ERASE, abi.Namespace.NVM, fields))


def session_remove(session: int, removed: range, before: int, layers: int = 0) -> Command:
    """SESSION_REMOVE: remove the tokens `removed` from the layers below `layers` (0: all); later tokens move down.

    `removed` begins behind the first group of 4096 bytes and is whole groups of every head. `before`: tokens that each
    of the heads has; the command is refused if that is wrong, so it can be sent again.
    """
    fields = {
        "session": session,
        "first_token": removed.start,
        "tokens": len(removed),
        "before": before,
        "layers": layers,
    }
    return Command(_entry(_REMOVE, abi.Opcode.SESSION_REMOVE, abi.Namespace.NVM, fields))


def session_fork(session: int, target: int, tokens: int) -> Command:
    """SESSION_FORK: the new session `target` begins with the first `tokens` tokens of `session`, in every layer."""
    fields = {"session": session, "target": target, "tokens": tokens}
    return Command(_entry(_FORK, abi.Opcode.SESSION_FORK, abi.Namespace.NVM, fields))


@dataclass(frozen=True)
class AttentionQuery:
    """The fields of an ATTN_SUBMIT but for its checksum, and its data."""

    fields: dict[str, int]
    data: Bytes

    def command(self) -> Command:
        """The ATTN_SUBMIT; its result is a ticket."""
        fields = self.fields | {"crc32c": crc32c(self.data)}
        return Command(_entry(_SUBMIT, abi.Opcode.ATTN_SUBMIT, abi.Namespace.CP, fields), self.data)


class AttentionOptions(TypedDict, total=False):
    """`mode`: EXACT (the default), PARTIAL (binary32 out), SPARF_ATTEND with `r` embedding rows and `k_top` tokens, the
    last `local` always among them, or GROUPS with `k_top` units of `r` tokens, and with `local` more of them until at
    most `local` / 65536 of the softmax is left unread, as the index estimates it.

    Inline tokens, which the drive does not have, come along: their scores int32 [heads, g, n] (Q12.20) and V float16
    [heads, n, d].
    """

    mode: abi.Mode
    r: int
    k_top: int
    local: int
    inline_scores: NDArray[np.int32] | None
    inline_v: Halves | None


def attention_query(
    session: int,
    layer: int,
    head: int,
    q: Halves,
    tokens: int,
    scale_log2e: int,
    valid: NDArray[np.bool_] | None = None,
    **options: Unpack[AttentionOptions],
) -> AttentionQuery:
    """Attend from q [heads, g, d] float16 to tokens 0 to `tokens` - 1.

    g is one of abi.COMMAND_GROUPS: 1 to 16, and multiples of 8 up to 128. `scale_log2e`: binary32 pattern of scale *
    log2(e). `valid`: bool [tokens], True = attend; None attends to all. Raises ValueError when only one of scores and V
    of inline tokens is there or the counts differ.
    """
    inline_scores, inline_v = options.get("inline_scores"), options.get("inline_v")
    heads, group, head_dim = q.shape
    bitmap = None if valid is None else np.packbits(valid, bitorder="little")
    inline_tokens = 0
    if inline_scores is not None or inline_v is not None:
        if inline_scores is None or inline_v is None:
            raise ValueError("inline tokens need scores and V")
        inline_tokens = inline_scores.shape[2]
        if inline_scores.shape != (heads, group, inline_tokens) or inline_v.shape != (heads, inline_tokens, head_dim):
            found = f"scores {inline_scores.shape} and V {inline_v.shape}"
            raise ValueError(f"inline tokens for q {q.shape} cannot have {found}")
    fields = {
        "session": session,
        "layer": layer,
        "head": head,
        "heads": heads,
        "tokens": tokens,
        "mode": options.get("mode", abi.Mode.EXACT),
        "group": group,
        "has_valid": valid is not None,
        "r": options.get("r", 0),
        "k_top": options.get("k_top", 0),
        "local": options.get("local", 0),
        "inline_tokens": inline_tokens,
        "scale_log2e": scale_log2e,
    }
    return AttentionQuery(fields, query_data(q, bitmap, inline_scores, inline_v))


def _as_command(query: Callable[Given, AttentionQuery]) -> Callable[Given, Command]:
    @wraps(query)
    def command(*args: Given.args, **kwargs: Given.kwargs) -> Command:
        return query(*args, **kwargs).command()

    return command


attn_submit = _as_command(attention_query)  # ATTN_SUBMIT: the result is a ticket


def attn_fetch(ticket: int, heads: int, group: int, head_dim: int, mode: abi.Mode = abi.Mode.EXACT) -> Command:
    """ATTN_FETCH: the result of a ticket, once; `attention_result` reads it. `mode` is that of the ATTN_SUBMIT."""
    return fetch_bytes(ticket, result_bytes(heads, group, head_dim, mode))


def fetch_bytes(ticket: int, size: int) -> Command:
    """ATTN_FETCH of a result of `size` bytes."""
    return Command(
        _entry(_FETCH, abi.Opcode.ATTN_FETCH, abi.Namespace.CP, {"ticket": ticket, "data_bytes": size}), room=size
    )


def result_bytes(heads: int, group: int, head_dim: int, mode: abi.Mode = abi.Mode.EXACT) -> int:
    """Bytes of the result of a query [heads, g, d]."""
    records = _records(group) * abi.AttentionResult.itemsize
    return heads * (records + group * head_dim * _out_type(mode).itemsize)


@dataclass(frozen=True)
class AttentionOutput:
    """The result of a query (docs/design/arithmetic.md).

    `out` [heads, g, d] float16, of PARTIAL float32; `record_bytes`: those of `records`.
    """

    out: NDArray[np.float16] | NDArray[np.float32]
    record_bytes: Bytes

    @property
    def records(self) -> NDArray[Any]:
        """abi.AttentionResult [heads, records of a KV head]."""
        return self.record_bytes.view(abi.AttentionResult).reshape(len(self.out), -1)

    @property
    def max(self) -> NDArray[np.int32]:
        """[heads, g]."""
        return self._of_heads("max")

    @property
    def sum(self) -> NDArray[np.uint64]:
        """[heads, g], LSB 2^-31."""
        return self._of_heads("sum")

    @property
    def alpha(self) -> NDArray[np.float32]:
        """[heads, g]; of GROUPS: the estimated share of the softmax that was not read."""
        return self._of_heads("alpha").view(np.float32)

    @property
    def selected(self) -> NDArray[np.uint32]:
        """[heads], of SparF: the tokens chosen."""
        selected: NDArray[np.uint32] = self.records["selected"][:, 0]
        return selected

    def _of_heads(self, name: str) -> NDArray[Any]:
        heads, group, _ = self.out.shape
        return self.records[name].reshape(heads, -1)[:, :group]


def attention_result(
    data: Bytes, heads: int, group: int, head_dim: int, mode: abi.Mode = abi.Mode.EXACT
) -> AttentionOutput:
    """The data of a successful ATTN_FETCH."""
    size = heads * _records(group) * abi.AttentionResult.itemsize
    return AttentionOutput(data[size:].view(_out_type(mode)).reshape(heads, group, head_dim), data[:size])


def _records(group: int) -> int:
    """Records of a KV head: one for every 8 of its query heads."""
    return -(-group // abi.MAX_GROUP)


def _out_type(mode: abi.Mode) -> np.dtype[Any]:
    return _SINGLES if mode == abi.Mode.PARTIAL else _HALVES


def _entry(layout: EntryLayout, opcode: abi.Opcode, namespace: abi.Namespace, fields: dict[str, int]) -> bytes:
    return layout.pack({"opcode": opcode, "nsid": namespace, **fields})


def _payload(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
