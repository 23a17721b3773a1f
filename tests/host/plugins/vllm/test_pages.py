"""Stored blocks hold the pages of all layers, whatever the strides of the engine's tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.copies import current_mark
from kvdrive.plugins.vllm.device_pages import DevicePages, pages_of
from kvdrive.plugins.vllm.pages import HostPages, Layer

NOW = current_mark(torch.device("cpu"))
KINDS = [HostPages, DevicePages]


def layers(count: int = 3, blocks: int = 20, page: int = 48, padding: int = 0) -> list[Layer]:
    """Views [blocks, page] of one tensor in which layers alternate, or lie one behind the other."""
    memory = torch.randint(-128, 127, (blocks, count, page + padding), dtype=torch.int8)
    return [Layer(memory[:, number], page) for number in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", range(1, 9))
@pytest.mark.parametrize("padding", [0, 16])
def test_blocks_come_back(kind, factor, padding):
    mine = layers(padding=padding)
    pages = kind(mine, factor)
    assert pages.bytes == 3 * 48 * factor
    source = list(range(1, factor + 1))
    stored = np.zeros(pages.bytes, np.uint8)
    pages.gather(source, stored, NOW)
    other = layers(padding=padding)
    before = [layer.view.clone() for layer in other]
    skip = factor // 2
    target = list(range(12, 12 + factor - skip))
    kind(other, factor).scatter(stored, skip, target, NOW)
    for own, theirs, old in zip(mine, other, before, strict=True):
        assert torch.equal(theirs.view[target, :48], own.view[source[skip:], :48])
        rest = [block for block in range(20) if block not in target]
        assert torch.equal(theirs.view[rest], old[rest])
        assert torch.equal(theirs.view[:, 48:], old[:, 48:]), "padding is not touched"


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_different_sizes(kind):
    sizes = [16, 48, 32]
    given = [Layer(torch.randint(-128, 127, (9, size), dtype=torch.int8), size) for size in sizes]
    pages = kind(given, 2)
    stored = np.zeros(pages.bytes, np.uint8)
    pages.gather([3, 7], stored, NOW)
    first = 0
    for layer, size in zip(given, sizes, strict=True):
        here = torch.from_numpy(stored[first : first + 2 * size]).view(torch.int8)
        assert torch.equal(here.view(2, size), layer.view[[3, 7]])
        first += 2 * size
    assert pages.layout == [2, *sizes]


def test_other_tensors_are_refused():
    for view in (torch.zeros(4, 8), torch.zeros(4, 8, 2, dtype=torch.int8), torch.zeros(8, 4, dtype=torch.int8).T):
        with pytest.raises(UnsupportedError, match=r"this plugin needs \[blocks, bytes of a page\]"):
            pages_of([Layer(view, 8)], 1)


def test_other_devices_are_refused():
    here, there = torch.zeros(4, 8, dtype=torch.int8), torch.zeros(4, 8, dtype=torch.int8, device="meta")
    for views, named in (([there], "'meta'"), ([here, there], "'cpu', 'meta'")):
        with pytest.raises(UnsupportedError, match=f"the KV tensors are on {named}: this plugin is for vLLM on the"):
            pages_of([Layer(view, 8) for view in views], 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_blocks_on_a_gpu_go_through_the_host_and_stay_on_it():
    mine = [Layer(layer.view.cuda(), layer.page_bytes) for layer in layers()]
    pages = pages_of(mine, 2)
    assert isinstance(pages, DevicePages)
    before = [layer.view.clone() for layer in mine]
    stored, there = np.zeros(pages.bytes, np.uint8), torch.zeros(pages.bytes, dtype=torch.uint8, device="cuda")
    pages.gather([1, 2], stored, pages.given())
    pages.gather([3, 4], there, pages.given())
    pages.scatter(stored, 0, [11, 12], pages.given())
    pages.scatter(there, 1, [14], pages.given())
    for layer, old in zip(mine, before, strict=True):
        assert torch.equal(layer.view[[11, 12, 14]], old[[1, 2, 4]])
