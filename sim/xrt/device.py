# SPDX-License-Identifier: Apache-2.0
"""The device process: `python -m xrt.device`, which XRT's shim starts for each card that a program opens.

Environment: EMULATION_SOCKETID, USER (set by the shim); KVDRIVE_CARD_KERNELS: compiled, rtl; KVDRIVE_CARD_FAULT:
KIND[:START] of xrt.units.Fault, or `image`, which refuses every image; KVDRIVE_CARD_LOG: a file for what happened;
KVDRIVE_CARD_DESIGN: in hw_emu, the folder of the simulation, which is the design: the runtime sends no image.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from xrt.images import DESIGN, KERNELS
from xrt.memory import CardMemory
from xrt.units import REGISTER_BYTES, Body, Fault, FunctionBody, Register, Unit, make_units
from xrt.wire import Call, Message, encode, receive, respond

_CONNECT_S = 10.0
_DEFAULT_MEMORY = 4 << 30
_OK, _REFUSED = encode((1, 1)), encode((1, 0))
_PAGE = 4096


class Device:
    """One card: memory, buffers and compute units. Each handler takes a call and returns the body of its response."""

    def __init__(self, kernels: str, fault: str, mark: Path | None = None) -> None:
        self._rtl = kernels == "rtl"
        self._refuses_images = fault == "image"
        self._fault = Fault("" if self._refuses_images else fault, mark)
        self._memory: CardMemory | None = None
        self._buffers: dict[int, int] = {}  # size by address
        self._units: list[Unit] = []
        self._folder = Path("/tmp")
        self._lost = False
        self.handlers: dict[int, Callable[[Message], bytes]] = {
            Call.LOAD_BITSTREAM: self._load,
            Call.ALLOC_BUFFER: self._allocate,
            Call.FREE_BUFFER: self._free,
            Call.COPY_TO_DEVICE: self._copy_in,
            Call.COPY_TO_HOST: self._copy_out,
            Call.WRITE_KERNEL: lambda call: self._write_registers(call.number(2), call.data(4)),
            Call.READ_KERNEL: lambda call: self._read_registers(call.number(2), call.number(3)),
            Call.REGISTER_WRITE: lambda call: self._write_registers(call.number(1) + call.number(2), call.data(3)),
            Call.REGISTER_READ: lambda call: self._read_registers(call.number(1) + call.number(2), call.number(3)),
            Call.IMPORT_BO: self._import,
            Call.COPY_BO: self._copy_to_file,
            Call.COPY_BO_FROM_FD: self._copy_from_file,
            Call.SETUP_INSTANCE: lambda call: _OK,
        }

    @property
    def memory(self) -> CardMemory:
        if self._memory is None:
            self._memory = CardMemory(_DEFAULT_MEMORY)
        return self._memory

    def starts(self) -> dict[str, int]:
        """Kernel starts by compute unit."""
        return {unit.name: unit.starts for unit in self._units}

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

    def _load(self, call: Message) -> bytes:
        if self._refuses_images:
            return _REFUSED
        self._folder = Path(call.text(5))
        if self._memory is None:
            size = sum(bank.number(7) for bank in call.messages(8))
            self._memory = CardMemory(size or _DEFAULT_MEMORY)
        if call.text(1):
            self.load_design(Path(call.text(1)), Path(call.text(2)))
        return _OK

    def load_design(self, description: Path, library: Path) -> None:
        """Make the compute units of an image from its description (XML); `library`: the compiled kernels."""
        self._units = make_units(description, self._bodies(library))

    def _bodies(self, library: Path) -> Callable[[str, list[Register]], Body]:
        if self._rtl:
            from xrt.rtl_body import RtlBody

            return lambda name, registers: RtlBody(name, registers, self.memory, self._buffer_at)
        functions = ctypes.CDLL(str(library))
        return lambda name, registers: FunctionBody(functions, name, registers, self.memory)

    def _buffer_at(self, address: int) -> tuple[int, int]:
        for start, size in self._buffers.items():
            if start <= address < start + size:
                return start, size
        raise IndexError(f"no buffer at {address:#x}")

    def _allocate(self, call: Message) -> bytes:
        address, size = call.number(1), -(-call.number(2) // _PAGE) * _PAGE
        self._buffers[address] = size
        if not call.number(3):  # the host sees no more than copies of it
            return encode((1, 1), (2, b""))
        path = self._folder / f"buffer-{os.getpid()}-{address:x}"
        path.unlink(missing_ok=True)
        self.memory.share(address, size, path)
        return encode((1, 1), (2, str(path).encode()))

    def _free(self, call: Message) -> bytes:
        self._buffers.pop(call.number(1), None)
        self.memory.release(call.number(1))
        return _OK

    def _copy_in(self, call: Message) -> bytes:
        if not self._lost:
            self.memory.write(call.number(3), call.data(4)[: call.number(5)])
        return encode((1, call.number(5)))

    def _copy_out(self, call: Message) -> bytes:
        size = call.number(5)
        data = b"\xff" * size if self._lost else self.memory.read(call.number(4), size)
        return encode((1, size), (2, data))

    def _unit(self, address: int) -> Unit | None:
        return next((unit for unit in self._units if unit.base <= address < unit.base + REGISTER_BYTES), None)

    def _write_registers(self, address: int, data: bytes) -> bytes:
        unit = self._unit(address)
        if unit is not None and not self._lost:
            unit.write(address - unit.base, data, self._fault, self._lose)
        return _OK

    def _lose(self) -> None:
        self._lost = True

    def _read_registers(self, address: int, size: int) -> bytes:
        """A card that fell off its bus reads as ones, as PCI Express does it."""
        unit = self._unit(address)
        if self._lost:
            return encode((1, 1), (2, b"\xff" * size))
        return encode((1, 1), (2, bytes(size) if unit is None else unit.read(address - unit.base, size)))

    def _import(self, call: Message) -> bytes:
        self.memory.attach(call.number(2), call.number(3), Path(call.text(1)))
        self._buffers[call.number(2)] = call.number(3)
        return _OK

    def _copy_to_file(self, call: Message) -> bytes:
        data = self.memory.read(call.number(1) + call.number(4), call.number(3))
        with open(call.text(2), "r+b") as file:
            file.seek(call.number(5))
            file.write(data)
        return _OK

    def _copy_from_file(self, call: Message) -> bytes:
        with open(call.text(2), "rb") as file:
            file.seek(call.number(4))
            self.memory.write(call.number(1) + call.number(5), file.read(call.number(3)))
        return _OK


def serve(connection: socket.socket, device: Device) -> Counter[str]:
    """Until the host closes the card. Returns how often each call came."""
    calls: Counter[str] = Counter()
    while True:
        try:
            number, body = receive(connection)
        except (EOFError, ConnectionError):
            return calls
        calls[Call(number).name if number in set(Call) else str(number)] += 1
        call = Message(body)
        if number == Call.CLOSE:
            respond(connection, _OK)
            if call.number(3):
                return calls
            continue
        handler = device.handlers.get(number)
        respond(connection, _OK if handler is None else handler(call))


def _connect() -> socket.socket:
    user = os.environ.get("USER")
    path = f"/tmp/{user}/{os.environ['EMULATION_SOCKETID']}" if user else "/tmp/xcl_sock"
    connection = socket.socket(socket.AF_UNIX)
    end = time.monotonic() + _CONNECT_S
    while True:
        try:
            connection.connect(path)
            return connection
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def main() -> None:
    log = os.environ.get("KVDRIVE_CARD_LOG")
    mark = Path(log).with_suffix(".fault") if log else None
    fault = os.environ.get("KVDRIVE_CARD_FAULT", "")
    device = Device(os.environ.get("KVDRIVE_CARD_KERNELS", "compiled"), fault, mark)
    if design := os.environ.get("KVDRIVE_CARD_DESIGN"):
        device.load_design(Path(design) / DESIGN, Path(design) / KERNELS)
    try:
        with _connect() as connection:
            calls = serve(connection, device)
        if log:
            with open(log, "a") as file:
                file.write(json.dumps({"calls": calls, "starts": device.starts()}) + "\n")
    finally:
        device.close()


if __name__ == "__main__":
    main()
