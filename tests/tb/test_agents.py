# SPDX-License-Identifier: Apache-2.0
"""Faults that the agents of the test bench detect, on pins that a test sets by hand."""

from collections.abc import Callable
from itertools import repeat
from types import SimpleNamespace

import numpy as np
import pytest

from tb.common import stalls
from tb.common.axi_memory import AxiMemory
from tb.common.axis import Sink
from tb.common.bench import ProtocolError
from tb.common.memory import GUARD, PAGE, Memory, Timing
from tb.common.report import Coverage, table


class Bits(int):
    """A value as cocotb gives it: a number, and as text its bits."""

    def __str__(self) -> str:
        return format(int(self), "b")


class Pin:
    def __init__(self, width: int = 1) -> None:
        self._value, self._width = Bits(0), width

    def __len__(self) -> int:
        return self._width

    @property
    def value(self) -> Bits:
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = Bits(value)


class Pins:
    """All pins that an agent asks for, 32 bits of data wide."""

    def __getattr__(self, name: str) -> Pin:
        pin = Pin(4 if name.endswith("STRB") else 32)
        setattr(self, name, pin)
        return pin


@pytest.fixture
def bench() -> SimpleNamespace:
    return SimpleNamespace(dut=Pins(), agents=[], cycle=0)


@pytest.fixture
def port(bench: SimpleNamespace) -> AxiMemory:
    memory = Memory()
    memory.add("data", bytes(range(256)) * 32, 0)
    return AxiMemory(bench, "gmem", memory)


def turns(bench: SimpleNamespace, count: int) -> None:
    for _ in range(count):
        bench.cycle += 1
        for agent in bench.agents:
            agent.turn()


def put(bench: SimpleNamespace, **values: int) -> None:
    for name, value in values.items():
        getattr(bench.dut, f"m_axi_gmem_{name}").value = value


def address(channel: str, at: int = 2 * PAGE, length: int = 0, size: int = 2, burst: int = 1) -> dict[str, int]:
    values = {"VALID": 1, "ADDR": at, "LEN": length, "SIZE": size, "BURST": burst, "ID": 0}
    return {channel + name: value for name, value in values.items()}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (address("AR", burst=0), "not INCR"),
        (address("AW", size=3), "words of 8 bytes on a bus of 4"),
        (address("AR", at=2 * PAGE + 2), "begins within a bus word"),
        (address("AW", at=3 * PAGE - 8, length=2), "crosses 4 KB"),
    ],
)
def test_a_burst_that_breaks_a_rule(bench: SimpleNamespace, port: AxiMemory, given: dict[str, int], text: str) -> None:
    put(bench, **given)
    with pytest.raises(ProtocolError, match=text):
        turns(bench, 2)


def test_an_address_must_stay_until_it_is_taken(bench: SimpleNamespace, port: AxiMemory) -> None:
    port.begin(np.random.default_rng(1), Timing(), dict.fromkeys(("AR", "R", "AW", "W", "B"), repeat(False)))
    put(bench, **address("AR"))
    turns(bench, 2)
    put(bench, ARADDR=0)
    with pytest.raises(ProtocolError, match="AR changed"):
        turns(bench, 1)
    put(bench, ARADDR=2 * PAGE, ARVALID=0)
    with pytest.raises(ProtocolError, match="ARVALID fell"):
        turns(bench, 1)


def test_wlast_belongs_to_the_last_word(bench: SimpleNamespace, port: AxiMemory) -> None:
    put(bench, **address("AW", length=1))
    turns(bench, 2)
    put(bench, AWVALID=0, WVALID=1, WDATA=1, WSTRB=15, WLAST=1)
    with pytest.raises(ProtocolError, match="WLAST is wrong at word 1 of 2"):
        turns(bench, 3)


def test_reads_come_after_the_latency_and_writes_change_what_is_strobed(
    bench: SimpleNamespace, port: AxiMemory
) -> None:
    put(bench, **address("AR", at=2 * PAGE + 4), RREADY=1, BREADY=1)
    turns(bench, 2)
    asked = bench.cycle
    put(bench, ARVALID=0)
    while not bench.dut.m_axi_gmem_RVALID.value:
        turns(bench, 1)
    assert bench.cycle - asked == Timing().latency
    assert bench.dut.m_axi_gmem_RDATA.value == 0x07060504
    put(bench, **address("AW"))
    turns(bench, 1)
    put(bench, AWVALID=0, WVALID=1, WDATA=0xAABBCCDD, WSTRB=0b0110, WLAST=1)
    turns(bench, 1)
    put(bench, WVALID=0)
    turns(bench, Timing().latency + 2)
    assert port._memory.content("data")[:4].tolist() == [0, 0xCC, 0xBB, 3]
    assert port.idle


def test_words_next_to_a_buffer_are_seen() -> None:
    memory = Memory()
    base = memory.add("data", bytes(100), 64)
    memory.write(base + 96, 0, 0b1111, 8)
    memory.check_guards()
    memory.write(base + 96, 0, 0b10000, 8)
    with pytest.raises(AssertionError, match="1 guard bytes behind the buffer data"):
        memory.check_guards()
    with pytest.raises(ProtocolError, match="in no buffer"):
        memory.write(base + 4 * PAGE, 0, 1, 8)
    with pytest.raises(ProtocolError, match="in no buffer"):
        memory.read(base - 8, 8)
    assert memory.read(base + 96, 8) == GUARD << 56 | GUARD << 48 | GUARD << 40


def test_a_slow_memory_refreshes_and_bursts_of_other_ids_overtake(bench: SimpleNamespace, port: AxiMemory) -> None:
    port.begin(np.random.default_rng(1), Timing(10, 4, 100, 20), {})
    assert port._schedule(3) == [20, 24, 28]
    assert port._schedule(20)[-1] == 32 + 4 * 19 + 20
    port.begin(np.random.default_rng(1), Timing(10, jitter=100), {})
    first = [port._schedule(1)[0] for _ in range(20)]
    assert first != sorted(first)


def test_a_sink_takes_words_when_its_gate_is_open(bench: SimpleNamespace) -> None:
    sink = Sink(bench, "out")
    sink.accept(iter([False, True, True, False, False]))
    bench.dut.out_tvalid.value, bench.dut.out_tdata.value = 1, 7
    turns(bench, 3)
    assert sink.words == [7, 7]
    turns(bench, 1)
    bench.dut.out_tdata.value = 8
    with pytest.raises(ProtocolError, match="TDATA changed"):
        turns(bench, 1)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [(stalls.NONE, 1.0, 1.0), (stalls.RARE, 0.4, 0.95), (stalls.OFTEN, 0.05, 0.6), (stalls.BURSTS, 0.2, 0.8)],
)
def test_a_gate_is_open_as_often_as_its_class_says(kind: str, least: float, most: float) -> None:
    for seed in range(5):
        gate = stalls.gate(np.random.default_rng(seed), kind)
        assert least <= sum(next(gate) for _ in range(4000)) / 4000 <= most


def test_a_bin_that_nobody_hits_is_a_hole() -> None:
    coverage = Coverage()
    coverage.declare("lengths", (1, 2))
    coverage.hit("lengths", 1)
    assert coverage.holes() == ["lengths: 2"]
    hit: Callable[[], None] = lambda: coverage.hit("lengths", 3)  # noqa: E731
    with pytest.raises(KeyError):
        hit()
    assert table(("a", "b"), [("x", 1000)]) == "| a | b |\n| --- | --: |\n| x | 1,000 |\n"
