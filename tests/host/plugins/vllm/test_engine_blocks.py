"""What scheduler and worker of an engine share: blocks go to the file or drive, come back, and stay while in use."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest
import torch

from kvdrive._native import Drive, Subsystem, TcpServer
from kvdrive.errors import UnsupportedError
from kvdrive.plugins.vllm.device_pages import DevicePages
from kvdrive.plugins.vllm.engine import EngineBlocks, open_blocks
from kvdrive.plugins.vllm.options import Options
from kvdrive.plugins.vllm.pages import HostPages, Layer, Pages
from kvdrive.plugins.vllm.staging import Found

PAGE, LAYERS, FACTOR = 1000, 3, 2
SLOT = 8192


class Engine:
    """The tensors of an engine with 8 blocks for each layer, and its stored blocks."""

    def __init__(self, options: Options, kind: type[Pages] = HostPages) -> None:
        self.tensors = [torch.zeros(8, PAGE, dtype=torch.int8) for _ in range(LAYERS)]
        pages = kind([Layer(tensor, PAGE) for tensor in self.tensors], FACTOR)
        self.blocks = EngineBlocks(options, pages, {"weights": "same"})
        self.jobs = 0

    def fill(self, number: int) -> None:
        for layer, tensor in enumerate(self.tensors):
            tensor[:] = 10 * number + layer

    def store(self, *names: bytes) -> None:
        """Store blocks 1 and 2 of the engine under each of `names`."""
        for name in names:
            pairs = self.blocks.reserve([name])
            self.jobs += 1
            self.blocks.transfers.store(self.jobs, [1, 2], [stored for _, stored in pairs])
            self.blocks.transfers.wait({self.jobs})

    def load(self, name: bytes) -> bool:
        """Load a block to blocks 5 and 6 of the engine; False if it is not found."""
        deadline = time.monotonic() + 60
        while (said := self.blocks.look(name, "r")) is Found.RETRY and time.monotonic() < deadline:
            self.blocks.staging.submit()
            time.sleep(0.001)
        if said is not Found.HIT:
            return False
        self.jobs += 1
        self.blocks.transfers.load(self.jobs, self.blocks.use([name], "r"), 0, [5, 6])
        self.blocks.transfers.wait({self.jobs})
        return True


@contextmanager
def opened(kind=HostPages, **options):
    engine = Engine(Options(**options), kind)
    try:
        yield engine
    finally:
        engine.blocks.close()


def test_blocks_that_requests_use_stay_and_others_are_evicted(tmp_path):
    with opened(path=tmp_path / "blocks", bytes=3 * SLOT) as engine:
        engine.store(b"a", b"b", b"c")
        engine.blocks.finish("request", [b"a", b"b"])
    with opened(path=tmp_path / "blocks", bytes=3 * SLOT) as engine:
        engine.store(b"d")
        assert [engine.load(name) for name in (b"a", b"b", b"c", b"d")] == [True, True, False, True]
        engine.blocks.finish("request", [b"d", b"a", b"b"])
    with opened(path=tmp_path / "blocks", bytes=3 * SLOT) as engine:
        engine.store(b"e")
        assert [engine.load(name) for name in (b"a", b"b", b"d", b"e")] == [True, False, True, True], (
            "the end of a prefix leaves first"
        )


def test_blocks_that_are_stored_behind_a_reset_are_found_by_this_engine_only(tmp_path):
    """vLLM resets its caches when the weights of a running engine have changed. Those of the files have not."""
    with opened(path=tmp_path / "blocks") as engine:
        engine.store(b"a")
        engine.blocks.reset()
        assert not engine.load(b"a")
        engine.store(b"a")
        assert engine.load(b"a")
    with opened(path=tmp_path / "blocks") as other:
        assert not other.load(b"a")


@pytest.mark.parametrize("direct", [False, True])
def test_blocks_of_a_device_come_back_through_the_host_and_directly(tmp_path, direct):
    """The code for a GPU, on tensors of the processor."""
    options = {"path": tmp_path / "blocks", "direct": direct, "buffer_bytes": 16 * SLOT}
    with opened(DevicePages, **options) as engine:
        engine.fill(3)
        engine.store(b"a", b"b")
    with opened(DevicePages, **options) as other:
        assert other.load(b"a")
        assert not other.load(b"c")
        for layer, tensor in enumerate(other.tensors):
            assert (tensor[5:7] == 30 + layer).all()
            assert (tensor[:5] == 0).all()
        assert other.blocks.store.stats.damaged == 0


def test_blocks_go_directly_to_a_gpu_only(tmp_path):
    with (
        pytest.raises(UnsupportedError, match="'direct' is for engines on a GPU"),
        opened(path=tmp_path / "blocks", direct=True),
    ):
        pass
    with pytest.raises(UnsupportedError, match="a tier reaches the host's memory only"):
        open_blocks(Options(path=tmp_path / "blocks", direct=True), 1000, b"model")


@pytest.fixture
def server(tmp_path):
    """A drive behind NVMe/TCP."""
    return TcpServer(Subsystem(Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)))


def test_blocks_on_a_remote_drive_are_found_by_other_engines(server):
    remote = f"tcp://127.0.0.1:{server.port}"
    with opened(drive=remote) as engine:
        engine.fill(3)
        engine.store(b"a")
    with opened(drive=remote) as other:
        assert other.load(b"a")
        assert not other.load(b"b")
        for layer, tensor in enumerate(other.tensors):
            assert (tensor[5:7] == 30 + layer).all()
            assert (tensor[:5] == 0).all()


@pytest.mark.slow  # the initiator tries to connect again for some time
def test_a_remote_drive_that_goes_away_costs_hits_and_nothing_else(tmp_path):
    server = TcpServer(Subsystem(Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)))
    with opened(drive=f"tcp://127.0.0.1:{server.port}") as engine:
        engine.store(b"a")
        del server
        engine.store(b"b")
        assert not engine.load(b"a")
        assert not engine.load(b"b")
        assert engine.blocks.store.stats.failed_writes == 1
