"""One queue of a remote controller: a TCP connection that carries commands, their data and their completions.

Only one thread may use a connection at a time. `exchange` keeps many commands in flight. It alternates between sending
what the socket accepts and reading what has arrived, so that the two sides do not block each other with full buffers.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode
from kvdrive.nvme.fabrics.pdu import (
    COMMON_BYTES,
    CONNECTION_BYTES,
    DIGEST_BYTES,
    MAX_HEADER_BYTES,
    Bytes,
    CommonHeader,
    DataRange,
    Digests,
    Flag,
    PduType,
    checksum,
    command_capsule,
    host_data,
    initialize_request,
)

_SGL_FLAG = 0x40  # flag of an entry: its data pointer is an SGL descriptor
_SGL_AT = 24  # byte offset of the SGL descriptor in the entry
_IN_CAPSULE, _TRANSPORT = 0x01, 0x5A  # kinds of SGL descriptors
_CIDS = 0xFFFF
_READ_AHEAD = 1 << 16
_PIECES_A_SEND = 64
_MOST_BYTES_IN_FLIGHT = 16 << 20
_TERM_REASONS = {
    1: "invalid header field",
    2: "sequence error",
    3: "header digest error",
    4: "data transfer out of range",
    5: "limit exceeded",
    6: "unsupported parameter",
}


class ConnectionLostError(TargetError):
    """The connection broke or a deadline passed.

    `done`: completions that arrived before, by the command's index. `doubtful`: indices of commands that were sent and
    not answered: the drive may have executed them.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.done: dict[int, Completion] = {}
        self.doubtful: set[int] = set()


@dataclass
class _InFlight:
    index: int
    command: Command
    data: Bytes  # to the host
    received: int = 0


@dataclass
class _Exchange:
    """The commands of one call of `exchange`."""

    commands: Sequence[Command]
    done: dict[int, Completion] = field(default_factory=dict)
    started: int = 0
    bytes_in_flight: int = 0


class QueueConnection:
    """A connection to `address` that has negotiated its digests; `entries` and `in_capsule` come from Connect.

    Raises ConnectionLostError.
    """

    def __init__(self, address: tuple[str, int], digests: Digests, timeout: float) -> None:
        self.entries = 2  # enough for Connect, which sets the queue's size
        self.in_capsule_bytes = 8192
        self._timeout = timeout
        self._digests = Digests()
        self._data_limit = 0
        self._buffer = bytearray()  # bytes that arrived and are not parsed yet
        self._scratch = memoryview(bytearray(_READ_AHEAD))
        self._outgoing: deque[memoryview] = deque()
        self._in_flight: dict[int, _InFlight] = {}
        self._cid = 0
        try:
            self._socket = socket.create_connection(address, timeout=timeout)
        except OSError as error:
            place = f"{address[0]}:{address[1]}"
            raise ConnectionLostError(f"no drive answers at {place}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, 0)
        try:
            self._negotiate(digests)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; may be called twice."""
        self._socket.close()

    def execute(self, command: Command) -> Completion:
        """One command. Raises ConnectionLostError."""
        return self.exchange([command])[0]

    def exchange(self, commands: Sequence[Command]) -> list[Completion]:
        """Completions of commands that do not depend on each other, in their order.

        Raises ConnectionLostError, whose `done` has the completions that arrived before.
        """
        work = _Exchange(commands)
        try:
            while len(work.done) < len(commands):
                self._start_commands(work)
                self._step(work)
        except ConnectionLostError as error:
            error.done = work.done
            error.doubtful = {one.index for one in self._in_flight.values()}
            raise
        return [work.done[index] for index in range(len(commands))]

    # ---- commands ----

    def _start_commands(self, work: _Exchange) -> None:
        while work.started < len(work.commands) and len(self._in_flight) < self.entries - 1:
            command = work.commands[work.started]
            size = command.room + (0 if command.data is None else command.data.size)
            if self._in_flight and work.bytes_in_flight + size > _MOST_BYTES_IN_FLIGHT:
                return
            self._send_command(command, work.started)
            work.started += 1
            work.bytes_in_flight += size

    def _send_command(self, command: Command, index: int) -> None:
        while self._cid in self._in_flight:
            self._cid = (self._cid + 1) % _CIDS
        cid, self._cid = self._cid, (self._cid + 1) % _CIDS
        data = command.data if command.data is not None and command.data.size else None
        inside = data is not None and data.size <= self.in_capsule_bytes
        length = data.size if data is not None else command.room
        entry = bytearray(command.encode(cid))
        entry[1] |= _SGL_FLAG
        struct.pack_into("<QI3xB", entry, _SGL_AT, 0, length, _IN_CAPSULE if inside else _TRANSPORT)
        self._in_flight[cid] = _InFlight(index, command, np.empty(command.room, np.uint8))
        self._queue(command_capsule(bytes(entry), data if inside else None, self._digests))

    def _complete(self, header: bytes, work: _Exchange) -> None:
        entry = header[COMMON_BYTES : COMMON_BYTES + 16]
        one = self._in_flight.pop(int.from_bytes(entry[12:14], "little"), None)
        if one is None:
            raise ConnectionLostError("the drive completed a command that it was not sent")
        completion = decode(entry, one.data[: one.received])
        work.done[one.index] = completion
        work.bytes_in_flight -= one.command.room + (0 if one.command.data is None else one.command.data.size)

    def _answer_request(self, header: bytes) -> None:
        """Send H2CData for an R2T, in pieces no larger than the controller accepts."""
        wanted = DataRange.parse(header)
        one = self._in_flight.get(wanted.cid)
        if one is None or one.command.data is None or wanted.offset + wanted.length > one.command.data.size:
            raise ConnectionLostError("the drive asked for data that no command has")
        end = wanted.offset + wanted.length
        for start in range(wanted.offset, end, self._data_limit):
            stop = min(start + self._data_limit, end)
            where = DataRange(wanted.cid, wanted.tag, start, stop - start)
            self._queue(host_data(where, one.command.data[start:stop], self._digests, last=stop == end))

    def _take_data(self, common: CommonHeader, header: bytes) -> None:
        """Receive C2HData directly into the buffer of its command."""
        where = DataRange.parse(header)
        one = self._in_flight.get(where.cid)
        padding = common.data_offset - common.header_bytes - DIGEST_BYTES * self._digests.header
        digest = DIGEST_BYTES if common.flags & Flag.DATA_DIGEST else 0
        whole = common.data_offset + where.length + digest == common.length
        if one is None or where.offset != one.received or where.offset + where.length > one.data.size or not whole:
            raise ConnectionLostError("the drive sent data that no command expects")
        self._read(padding)
        target = one.data[where.offset : where.offset + where.length]
        self._read_into(target.data)
        if digest and int.from_bytes(self._read(DIGEST_BYTES), "little") != checksum(target):
            raise ConnectionLostError("data arrived damaged: their digest is wrong")
        one.received += where.length

    # ---- PDUs and bytes ----

    def _negotiate(self, digests: Digests) -> None:
        self._queue([initialize_request(digests)])
        deadline = time.monotonic() + self._timeout
        while self._outgoing:
            self._wait(select.POLLOUT, deadline)
            self._send()
        common, header = self._read_header()
        if common.kind != PduType.IC_RESP or common.length != CONNECTION_BYTES:
            raise ConnectionLostError("what answers there does not speak NVMe/TCP")
        version, alignment, agreed, limit = struct.unpack_from("<HBBI", header, COMMON_BYTES)
        if version != 0 or alignment != 0 or limit < 4096:
            raise ConnectionLostError("the drive speaks another version of NVMe/TCP")
        self._digests = Digests(bool(agreed & 1), bool(agreed & 2))
        if self._digests != digests:
            raise ConnectionLostError("the drive did not agree to the digests that this host wants")
        self._data_limit = limit

    def _step(self, work: _Exchange) -> None:
        """Send what the socket accepts; then read one PDU if one has begun to arrive, else wait."""
        self._send()
        if not self._buffer:
            events = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
            if not self._wait(events, time.monotonic() + self._timeout) & (select.POLLIN | select.POLLHUP):
                return
        common, header = self._read_header()
        if common.kind == PduType.RESPONSE:
            self._complete(header, work)
        elif common.kind == PduType.C2H_DATA:
            self._take_data(common, header)
        elif common.kind == PduType.READY_TO_TRANSFER:
            self._answer_request(header)
        else:
            raise ConnectionLostError(f"the drive sent a PDU of type {common.kind}, which a host does not take")

    def _read_header(self) -> tuple[CommonHeader, bytes]:
        """Read the whole header of the next PDU and check its digest."""
        start = bytes(self._read(COMMON_BYTES))
        common = CommonHeader.parse(start)
        if not COMMON_BYTES < common.header_bytes <= min(MAX_HEADER_BYTES, common.length):
            raise ConnectionLostError("the drive sent a PDU with an impossible header")
        header = start + bytes(self._read(common.header_bytes - COMMON_BYTES))
        if common.kind == PduType.C2H_TERM:
            reason = int.from_bytes(header[COMMON_BYTES : COMMON_BYTES + 2], "little")
            raise ConnectionLostError(f"the drive ended the connection: {_TERM_REASONS.get(reason, f'error {reason}')}")
        if self._digests.header and int.from_bytes(self._read(DIGEST_BYTES), "little") != checksum(header):
            raise ConnectionLostError("a header arrived damaged: its digest is wrong")
        return common, header

    def _queue(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._outgoing.extend(memoryview(piece) for piece in pieces if len(piece))

    def _send(self) -> None:
        while self._outgoing:
            pieces = [self._outgoing[index] for index in range(min(_PIECES_A_SEND, len(self._outgoing)))]
            try:
                sent = self._socket.sendmsg(pieces)
            except BlockingIOError:
                return
            except OSError as error:
                raise ConnectionLostError(f"the connection to the drive broke: {error.strerror}") from error
            for piece in pieces:
                if sent < len(piece):
                    self._outgoing[0] = piece[sent:]
                    break
                sent -= len(piece)
                self._outgoing.popleft()

    def _read(self, count: int) -> bytes:
        """Read exactly `count` bytes."""
        while len(self._buffer) < count:
            received = self._receive_into(self._scratch)
            self._buffer += self._scratch[:received]
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _read_into(self, target: memoryview) -> None:
        """Fill `target` directly, so that large data are copied once."""
        count = min(len(self._buffer), len(target))
        target[:count] = self._buffer[:count]
        del self._buffer[:count]
        while count < len(target):
            count += self._receive_into(target[count:])

    def _receive_into(self, target: memoryview) -> int:
        """Receive at least one byte."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                received = self._socket.recv_into(target)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except OSError as error:
                raise ConnectionLostError(f"the connection to the drive broke: {error.strerror}") from error
            if not received:
                raise ConnectionLostError("the drive closed the connection")
            return received

    def _wait(self, events: int, deadline: float) -> int:
        """Wait until one of `events` is possible; returns those that are. Raises ConnectionLostError."""
        self._poll.modify(self._socket, events)
        while True:
            left = deadline - time.monotonic()
            ready = self._poll.poll(max(0.0, left) * 1000)
            if ready:
                return ready[0][1]
            if left <= 0:
                raise ConnectionLostError(f"the drive did not answer within {self._timeout:g} s")
