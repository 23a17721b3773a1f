"""The contender `mmap` of the benchmarks of weights stays within its bound of the page cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bench.weights.mapped_files import BoundedPages, MappedFile, Region, on_disk

COUNT, SIZE = 48, 1 << 20


@pytest.fixture
def file(tmp_path):
    if not on_disk(tmp_path):
        pytest.skip("pages of a file system in memory cannot leave it")
    path = tmp_path / "x.safetensors"
    tensors = {f"t{number:02}": torch.full((SIZE,), number, dtype=torch.uint8) for number in range(COUNT)}
    save_file(tensors | {"a": torch.zeros(3)}, path)  # so that the others do not begin on pages
    return MappedFile(path)


def bounded(file: MappedFile, bound: int) -> BoundedPages:
    return BoundedPages([file], {n: Region(0, file.places[f"t{n:02}"]) for n in range(COUNT)}, bound)


def read(file: MappedFile, number: int) -> None:
    assert int(file.tensor(f"t{number:02}").sum(dtype=torch.int64)) == number * SIZE


@pytest.mark.parametrize("advised", [False, True])
def test_pages_that_were_read_ahead_count_and_leave(file, advised):
    pages = bounded(file, 10 * SIZE)
    if advised:
        file.read_nothing_ahead()
    for number in np.random.default_rng(1).integers(0, COUNT, 60).tolist():
        if advised:
            pages.advise(number)
        pages.use(number)
        read(file, number)
        pages.trim(number)
        for _ in range(100):  # what the kernel still reads ahead may come afterwards
            pages.require_bound()
            if (held := np.count_nonzero(file.pages(0, file.bytes)) * 4096) <= 10 * SIZE:
                break
        assert held <= 10 * SIZE
        assert file.pages(*file.places[f"t{number:02}"]).all()  # what was used last stays
    assert pages.hits + pages.misses == 60
    assert 0 < pages.missing_bytes <= pages.misses * SIZE
    assert pages.counters()["=page_cache"] <= 10 * SIZE


def test_a_page_cache_beyond_the_bound_is_refused(file, monkeypatch):
    pages = bounded(file, 4 * SIZE)
    for number in range(0, COUNT, 4):
        pages.use(number)
        read(file, number)
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "drop", lambda self, begin, end: None)  # as if the kernel kept every page
        with pytest.raises(RuntimeError, match="the page cache holds"):
            pages.require_bound(seconds=0)
    for number in range(COUNT):
        pages.use(number)
    pages.require_bound()
    assert np.count_nonzero(file.pages(0, file.bytes)) * 4096 <= 4 * SIZE


def test_a_region_that_is_there_is_not_missing(file):
    pages = bounded(file, COUNT * SIZE * 2)
    for _ in range(2):
        pages.use(7)
        read(file, 7)
        pages.trim(7)
    assert (pages.hits, pages.misses, pages.missing_bytes) == (1, 1, SIZE)
