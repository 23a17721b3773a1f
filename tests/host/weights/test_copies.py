"""Two copies of a file of weights: who serves which reads, and what happens when one of them cannot."""

import shutil
from fractions import Fraction

import moe_models
import numpy as np
import pytest
import torch
from rich.console import Console

from kvdrive.errors import InputError, TargetError
from kvdrive.weights.copies import Copies
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.making import make_file
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint folder, its file of weights, and a copy."""
    folder = moe_models.save("mixtral", tmp_path_factory.mktemp("mixtral"))
    path = make_file(folder, folder / "w.kvw", "auto", Console(quiet=True)).path
    return folder, path, shutil.copy(path, tmp_path_factory.mktemp("copy") / "w.kvw")


def damage(path, array):
    """Change a byte of every bundle."""
    with path.open("r+b") as file:
        for index in range(array.count):
            file.seek(array.bundle(index))
            first = file.read(1)[0]
            file.seek(array.bundle(index))
            file.write(bytes([first ^ 1]))


def test_both_copies_serve_and_the_tokens_stay(made):
    folder, path, copy = made
    prompt = torch.arange(2, 22)[None]
    expected = moe_models.in_memory(folder).generate(prompt, max_new_tokens=8, do_sample=False)
    checkpoint = load(str(folder), "float32", FlashOptions(path, Fraction(6, 10), weights_copy=copy))
    assert torch.equal(checkpoint.model.generate(prompt, max_new_tokens=8, do_sample=False), expected)
    shares = checkpoint.weights.file.bytes_by_copy
    assert min(shares) > 0
    assert sum(shares) == checkpoint.weights.report()["flash_bytes"]
    checkpoint.weights.close()


@pytest.mark.parametrize("damaged", [0, 1])
def test_what_one_copy_cannot_read_comes_from_the_other(damaged, made, tmp_path, monkeypatch):
    paths = [shutil.copy(path, tmp_path / f"{number}.kvw") for number, path in enumerate(made[1:])]
    whole = WeightsFile(made[1])
    array = whole.manifest.experts[0]
    damage(paths[damaged], array)
    file = WeightsFile(paths[0], copy=paths[1])
    monkeypatch.setattr(file._open, "_rates", lambda: np.ones(2))  # measured ones depend on what else runs here
    memory = aligned(array.count * array.stride).reshape(array.count, array.stride)
    for index in range(array.count):
        tickets = [file.start(array, index, memory[index]), file.start(array, index, aligned(array.stride))]
        for ticket in tickets:
            file.wait(ticket, array, index)
    expected = aligned(array.stride)
    for index in range(array.count):
        whole.read(array, index, expected)
        assert np.array_equal(memory[index], expected)
    memory[:] = 0
    every = np.arange(array.count)
    file.read_rows(array, every, memory, every[::-1].copy())
    whole.read(array, 3, expected)
    assert np.array_equal(memory[array.count - 1 - 3], expected)
    assert file._open.repaired == array.count + 1  # of each pair of reads the damaged copy had one, and half the rows
    damage(paths[1 - damaged], array)
    with pytest.raises(TargetError, match="is damaged"):
        file.read(array, 0, expected)
    with pytest.raises(TargetError, match="is damaged"):
        file.read_rows(array, every, memory, every)
    file.close()
    whole.close()


def test_another_file_is_no_copy(made, tmp_path):
    folder, path, _ = made
    other = make_file(folder, tmp_path / "o.kvw", "int8", Console(quiet=True)).path
    with pytest.raises(InputError, match="is no copy of"):
        WeightsFile(path, copy=other)


class Reader:
    """A drive of this rate that ends no read."""

    around_cache = True

    def __init__(self, rate):
        self.rate, self.started = rate, 0

    def counters(self):
        return {"bytes": 1000 * self.rate, "busy_ns": 1000}

    def start(self, offset, to, checksums, ahead):
        self.started += 1
        return self.started

    def start_rows(self, offsets, to, places, checksums):
        self.started += len(offsets)
        return list(range(len(offsets)))

    def wait_all(self, tickets):
        return -1, 0, -1


def test_the_shorter_queue_serves():
    readers = [Reader(3), Reader(1)]
    copies = Copies(readers)
    for _ in range(40):
        copies.start(0, np.zeros(4096, np.uint8), np.zeros(1, np.uint32))
    assert [one.started for one in readers] == [30, 10]
    rows, sums = np.arange(100), np.zeros((100, 1), np.uint32)
    assert copies.read_rows(rows, np.zeros((100, 1), np.uint8), rows, sums) == (-1, 0, -1)
    assert [one.started for one in readers] == [105, 35]
