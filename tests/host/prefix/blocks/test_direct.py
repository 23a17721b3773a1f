"""Blocks that go to and from the memory of a device: found again, checked there, and moved by kvikio where it is."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from block_checks import BLOCK, SLOT, fill, found, key

from kvdrive.prefix.blocks.device_file import HostFile, KvikioFile, open_device_file
from kvdrive.prefix.blocks.direct import DeviceBuffers, blocks_direct
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import BlockOptions

ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
CPU = torch.device("cpu")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def device(request):
    return torch.device(request.param)


def opened(path, device, slots=8):
    return blocks_direct(path, BLOCK, device, BlockOptions(slots * SLOT, b"model"))


def test_blocks_are_found_by_a_later_process(tmp_path, device):
    path, buffers = tmp_path / "blocks.kv", DeviceBuffers(2, SLOT, device)
    store = opened(path, device)
    assert fill(store, buffers, [1, 2, 3]) == [1, 2, 3]
    assert fill(store, buffers, [2, 4]) == [4]
    store.close()
    path.with_name("blocks.kv.index").unlink()  # made again from the headers
    store = opened(path, device)
    assert all(found(store, buffers, number) for number in (1, 2, 3, 4))
    assert not found(store, buffers, 5)
    assert (store.stats.read, store.stats.bytes_read, store.stats.damaged) == (4, 4 * SLOT, 0)
    store.close()


@pytest.mark.parametrize("at", [0, 20, 40, HEADER_BYTES, HEADER_BYTES + 5000, HEADER_BYTES + BLOCK - 1])
def test_a_changed_bit_is_a_miss(tmp_path, device, at):
    path, buffers = tmp_path / "blocks.kv", DeviceBuffers(2, SLOT, device)
    store = opened(path, device)
    fill(store, buffers, [1, 2])
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x80]))
    assert not found(store, buffers, 1)
    assert found(store, buffers, 2)
    assert store.stats.damaged == 1
    store.close()


def test_a_block_of_another_key_and_a_file_that_ends_are_misses(tmp_path, device):
    path, buffers = tmp_path / "blocks.kv", DeviceBuffers(2, SLOT, device)
    store = opened(path, device)
    fill(store, buffers, [1, 2, 3])
    whole = path.read_bytes()
    path.write_bytes(whole[SLOT : 2 * SLOT] + whole[SLOT : 2 * SLOT] + whole[2 * SLOT : 3 * SLOT - 4096])
    assert store.read([key(1), key(2), key(3)], [buffers[0], buffers[1], buffers[0]]) == [False, True, False]
    store.close()


def test_without_a_gpu_the_host_reads_and_writes(tmp_path):
    (tmp_path / "file").touch()
    file = open_device_file(tmp_path / "file", CPU)
    assert isinstance(file, HostFile)
    data, back = torch.arange(8192, dtype=torch.int32).view(torch.uint8), torch.zeros(32768, dtype=torch.uint8)
    assert file.write(data, 4096) == 32768
    assert file.read(back, 4096) == 32768
    assert torch.equal(back, data)
    assert file.read(back, 32768) == 4096
    assert file.how == "host"
    file.close()


@ON_GPU
@pytest.mark.skipif(importlib.util.find_spec("kvikio") is None, reason="kvikio is not installed")
def test_a_gpu_reads_and_writes_through_kvikio(tmp_path):
    """With GDS, or in kvikio's compatibility mode: the file says which."""
    (tmp_path / "file").touch()
    file = open_device_file(tmp_path / "file", torch.device("cuda"))
    assert isinstance(file, KvikioFile)
    assert file.how in ("gds", "compat")
    data = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device="cuda")
    back = torch.zeros_like(data)
    torch.cuda.synchronize()
    assert file.write(data, 8192) == data.numel()
    assert file.read(back, 8192) == data.numel()
    assert torch.equal(back, data)
    file.close()
