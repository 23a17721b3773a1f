# SPDX-License-Identifier: Apache-2.0
"""The AXI4 masters of a top: a read and a write engine per memory port; ports of one bundle share its master.

Transactions of a port have one ID, so that any interconnect keeps their order; the ports of a bundle have IDs of their
own. A master is reset together with its bus: it forgets what was on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.emit.netlist import Module, Net, Term, any_of, literal, operate
from openhls.ir import REQUEST_WIDTH, MemoryPort, Opcode

NARROWEST = 32  # bits of a bus
PAGE = 8 * 4096  # bits; no burst crosses a page
# What every transfer says of itself: ascending addresses; modifiable, bufferable memory.
FIXED = (("BURST", 2, 1), ("LOCK", 2, 0), ("CACHE", 4, 3), ("PROT", 3, 0), ("QOS", 4, 0), ("REGION", 4, 0))


def kinds_of(port: MemoryPort) -> dict[str, int]:
    """The streams of a port, NAME_kind, and their widths."""
    reading = {"ar": REQUEST_WIDTH, "r": port.width} if port.reads else {}
    return reading | ({"aw": REQUEST_WIDTH, "w": port.width, "b": 1} if port.writes else {})


def stream_names(memories: tuple[MemoryPort, ...]) -> set[str]:
    """The streams of the top's process that lead to memory."""
    return {f"{port.name}_{kind}" for port in memories for kind in kinds_of(port)}


def burst_words(wanted: int, bus: int) -> int:
    """The longest burst in words of `bus` bits: a power of two, within `wanted`, a page and what AXI4 allows."""
    return 1 << (max(1, min(wanted, PAGE // bus, 256)).bit_length() - 1)


def bus_widths(memories: tuple[MemoryPort, ...]) -> dict[str, int]:
    """The bits of a bus word of each bundle: those of its widest element."""
    widths: dict[str, int] = {}
    for port in memories:
        widths[port.bundle] = max(widths.get(port.bundle, NARROWEST), port.width)
    return widths


@dataclass
class Masters:
    """Adds masters to the module of a top. `begins` is the pulse that begins a job.

    `inputs` and `outputs` are for the instance of the top's process; `errors` says which ports have seen an error.
    """

    module: Module
    begins: Term
    inputs: dict[str, Term] = field(default_factory=dict)
    outputs: dict[str, Net] = field(default_factory=dict)
    errors: dict[str, Term] = field(default_factory=dict)

    def build(self, memories: tuple[MemoryPort, ...]) -> None:
        """All of them, a bundle at a time."""
        for name, bus in bus_widths(memories).items():
            Bundle(self, name, bus, [port for port in memories if port.bundle == name]).build()

    def connect(self, port: MemoryPort, kind: str) -> dict[str, Net]:
        """Nets data, valid and ready between the process and an engine."""
        name = f"{port.name}_{kind}"
        nets = {
            part: self.module.net(f"{name}_{part}", kinds_of(port)[kind] if part == "data" else 1)
            for part in ("data", "valid", "ready")
        }
        word = {f"{name}_{part}": nets[part] for part in ("data", "valid")}
        taken = {f"{name}_ready": nets["ready"]}
        arrives = kind in ("r", "b")
        self.inputs |= word if arrives else taken
        self.outputs |= taken if arrives else word
        return nets


@dataclass
class Bundle:
    """One master, m_axi_NAME_*, and the engines of its ports."""

    masters: Masters
    name: str
    bus: int  # bits of a word
    ports: list[MemoryPort]

    def __post_init__(self) -> None:
        self.module = self.masters.module
        self.readers = [port for port in self.ports if port.reads]
        self.writers = [port for port in self.ports if port.writes]
        self.id = max(1, (max(len(self.readers), len(self.writers)) - 1).bit_length())

    def build(self) -> None:
        pins = self.pins()
        if self.readers:
            self.reading(pins)
        if self.writers:
            self.writing(pins)

    def pins(self) -> dict[str, Net]:
        """All pins of the master by their names in lower case; what it never says is constant."""
        width = {"ADDR": 64, "LEN": 8, "ID": self.id, "DATA": self.bus, "STRB": self.bus // 8, "RESP": 2}
        found: dict[str, Net] = {}

        def add(channel: str, names: str, outward: bool) -> None:
            for name in names.split():
                pin = f"m_axi_{self.name}_{channel}{name}"
                make = self.module.output if outward else self.module.input
                found[f"{channel}{name}".lower()] = make(pin, width.get(name, 1))

        def fix(channel: str, name: str, value: Term) -> None:
            self.module.assign(self.module.output(f"m_axi_{self.name}_{channel}{name}", value.width), value)

        for channel in ("AW", "AR"):
            add(channel, "VALID ID ADDR LEN", True)
            add(channel, "READY", False)
            fix(channel, "SIZE", literal(3, (self.bus // 8).bit_length() - 1))
            for name, bits, value in FIXED:
                fix(channel, name, literal(bits, value))
        add("W", "VALID DATA STRB LAST", True)
        add("W", "READY", False)
        add("R", "VALID ID DATA RESP LAST", False)
        fix("R", "READY", literal(1, 1))
        add("B", "VALID ID RESP", False)
        fix("B", "READY", literal(1, 1))
        silent = "" if self.readers else "arvalid arid araddr arlen"
        silent += "" if self.writers else " awvalid awid awaddr awlen wvalid wdata wstrb wlast"
        for name in silent.split():
            self.module.assign(found[name], literal(found[name].width, 0))
        return found

    def reading(self, pins: dict[str, Net]) -> None:
        engines = []
        for port in self.readers:
            request, element = self.masters.connect(port, "ar"), self.masters.connect(port, "r")
            outputs = {"element_data": element["data"], "element_valid": element["valid"]}
            inputs = {"element_ready": element["ready"], **{name: pins[name] for name in ("rdata", "rresp", "rlast")}}
            shared = self.shared(port, {"arvalid": 1, "araddr": 64, "arlen": 8}, ("arready", "rvalid"))
            self.engine("read", port, request, inputs | shared[1], outputs | shared[0])
            engines.append(shared)
        names = ("arready", "rvalid", "rid")
        self.share("read", engines, {name: pins[name] for name in names}, pins, ("arvalid", "arid", "araddr", "arlen"))

    def writing(self, pins: dict[str, Net]) -> None:
        engines = []
        sent = {"awvalid": 1, "awaddr": 64, "awlen": 8, "wvalid": 1, "wdata": self.bus, "wstrb": self.bus // 8}
        for port in self.writers:
            request, element, answer = (self.masters.connect(port, kind) for kind in ("aw", "w", "b"))
            outputs = {
                "element_ready": element["ready"],
                "answer_data": answer["data"],
                "answer_valid": answer["valid"],
            }
            inputs = {
                "element_data": element["data"],
                "element_valid": element["valid"],
                "answer_ready": answer["ready"],
                "bresp": pins["bresp"],
            }
            shared = self.shared(port, {**sent, "wlast": 1}, ("awready", "wready", "bvalid"))
            self.engine("write", port, request, inputs | shared[1], outputs | shared[0])
            engines.append(shared)
        names = ("awready", "wready", "bvalid", "bid")
        given = ("awvalid", "awid", "awaddr", "awlen", "wvalid", "wdata", "wstrb", "wlast")
        self.share("write", engines, {name: pins[name] for name in names}, pins, given, BUS=self.bus)

    def shared(
        self, port: MemoryPort, sent: dict[str, int], received: tuple[str, ...]
    ) -> tuple[dict[str, Net], dict[str, Net]]:
        """Nets between an engine and the share: what the engine sends, and the bits that it gets."""
        outputs = {name: self.module.net(f"{port.name}_{name}", width) for name, width in sent.items()}
        return outputs, {name: self.module.net(f"{port.name}_{name}", 1) for name in received}

    def engine(
        self, kind: str, port: MemoryPort, request: dict[str, Net], inputs: dict[str, Net], outputs: dict[str, Net]
    ) -> None:
        """An instance of openhls_axi_read or openhls_axi_write."""
        failed = self.module.net(f"{port.name}_{kind}_failed", 1)
        errors = self.masters.errors
        errors[port.name] = any_of([*([errors[port.name]] if port.name in errors else []), failed])
        reads = kind == "read"
        self.module.instance(
            f"openhls_axi_{kind}",
            f"{port.name}_{kind}",
            {
                "clear": self.masters.begins,
                "request_data": request["data"],
                "request_valid": request["valid"],
                **inputs,
            },
            {"failed": failed, "request_ready": request["ready"], **outputs},
            f"{port.name}: {port.location}",
            WIDTH=port.width,
            BUS=self.bus,
            BURST=burst_words(port.read_burst if reads else port.write_burst, self.bus),
            OUTSTANDING=port.read_outstanding if reads else port.write_outstanding,
        )

    def share(
        self,
        kind: str,
        engines: list[tuple[dict[str, Net], dict[str, Net]]],
        inputs: dict[str, Net],
        pins: dict[str, Net],
        given: tuple[str, ...],
        **parameters: int,
    ) -> None:
        """The share of a channel pair: engine i is bit i, or slice i, of what goes to it."""
        sent = {
            f"in_{name}": operate(Opcode.CONCAT, *(outputs[name] for outputs, _ in reversed(engines)))
            if len(engines) > 1
            else engines[0][0][name]
            for name in engines[0][0]
        }
        bits = {name: self.module.net(f"{self.name}_{name}s", len(engines)) for name in engines[0][1]}
        for number, (_, received) in enumerate(engines):
            for name, net in received.items():
                self.module.assign(net, operate(Opcode.EXTRACT, bits[name], width=1, low=number))
        self.module.instance(
            f"openhls_axi_share_{kind}",
            f"{self.name}_{kind}s",
            {**sent, **inputs},
            {**{f"in_{name}": net for name, net in bits.items()}, **{name: pins[name] for name in given}},
            "",
            COUNT=len(engines),
            ID=self.id,
            **parameters,
        )
