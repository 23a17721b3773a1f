"""The prefill pipeline: K and V of a layer are sent while the next one computes. The host holds two layers at most."""

import threading

import pytest
import torch
from small_models import SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive.errors import TargetError
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.queue import DriveQueue

LAYERS = 6
DEEP = LlamaConfig(**SMALL | {"num_hidden_layers": LAYERS}, num_key_value_heads=4)
LAYER_BYTES = 2 * 200 * 4 * 32 * 2 * 2  # rows, tokens, heads, d, binary16, K and V


@pytest.fixture(scope="module")
def deep():
    return random_model(DEEP)


class Gate(Emulator):
    """A drive whose appends wait while the gate is closed."""

    def __init__(self, path):
        super().__init__(path, "fast", capacity_bytes=1 << 26)
        self.open = threading.Event()
        self.open.set()

    def submit(self, command):
        self.open.wait(60)
        return super().submit(command)


def test_the_model_continues_while_a_drive_is_busy(tmp_path, deep):
    """With the drive shut after layer 0's sessions exist, layers 0 and 1 compute, and layer 2 waits for room."""
    computed = []
    with Gate(tmp_path / "drive.kv") as drive, attach(deep, drive) as attached, torch.no_grad():
        cache = attached.cache()
        cache.batch.part.open(2, 4)
        drive.open.clear()
        two_done = threading.Event()

        def note(module, arguments, output):
            computed.append(module.self_attn.layer_idx)
            if len(computed) == 2:
                two_done.set()

        hooks = [layer.register_forward_hook(note) for layer in deep.model.layers]
        prefill = threading.Thread(target=lambda: torch.no_grad()(deep)(prompts(2, 200), past_key_values=cache))
        prefill.start()
        assert two_done.wait(60)
        prefill.join(0.2)
        assert computed == [0, 1]
        assert prefill.is_alive()
        drive.open.set()
        prefill.join(60)
        for hook in hooks:
            hook.remove()
        assert computed == list(range(LAYERS))
        cache.batch.synchronize()
        stats = cache.batch.statistics.transfers()
    assert stats.bytes_sent == LAYERS * LAYER_BYTES
    assert stats.peak_bytes == 2 * LAYER_BYTES
    assert stats.waiting > 0  # this test forced a wait
    assert 0 <= stats.overlap < 1


def test_an_error_of_the_background_reaches_the_caller(tmp_path, deep):
    with Emulator(tmp_path / "small.kv", "fast", capacity_bytes=40 * 4096) as small, torch.no_grad():
        with attach(deep, small) as attached:
            cache = attached.cache()
            with pytest.raises(CommandError, match="KV_APPEND failed: CAPACITY_EXCEEDED"):
                deep(prompts(2, 200), past_key_values=cache)
            deep(prompts(1, 20), past_key_values=attached.cache())  # the failed cache was trimmed from the drive
        assert small._drive.sessions() == []


def test_work_of_a_queue_is_done_in_order(target):
    queue, order = DriveQueue(target), []
    futures = [queue.start(lambda _, i=i: order.append(i)) for i in range(50)]
    failed = queue.start(lambda _: 1 // 0)
    assert queue.run(lambda drive: drive) is target
    assert order == list(range(50))
    assert all(future.done() for future in futures)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert not queue.failed
    queue.close()
    queue.close()
    with pytest.raises(TargetError, match="detached"):
        queue.run(lambda drive: drive)
