"""A disk that is full in the middle of the work: the error names disk and file, and nothing that was stored is lost."""

import numpy as np
import pytest
import torch
from small_models import prompts

from kvdrive import abi
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.session import Session
from kvdrive.nvme.commands import flush
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

ROWS = np.random.default_rng(1).standard_normal((1, 40, 64)).astype(np.float16)


def store(model, ids, cache):
    """A call of the model, all of whose tokens are durable afterwards."""
    model(ids, past_key_values=cache)
    cache.batch.part.shared.backing.flush()


@pytest.mark.parametrize("kind", [Emulator, CpuDrive])
@pytest.mark.parametrize("step", ["prefill", "append"])
def test_a_full_disk_is_named_and_costs_nothing_that_was_stored(llama, tmp_path, kind, step):
    """The prompt is on its way to the drive, or a token of the answer is."""
    path, ids = tmp_path / "drive.kv", prompts(1, 70)
    with kind(path, engine="fast", capacity_bytes=1 << 26) as drive:
        earlier = Session(drive)
        earlier.append(0, abi.KvKind.KEYS, 0, ROWS)
        drive.execute(flush())
        stock = greedy(llama, ids, 6)
        with attach(llama, drive, spill=1) as attached, torch.no_grad():
            cache = attached.cache()
            if step == "append":
                llama(ids[:, :-1], past_key_values=cache)
                cache.batch.part.shared.backing.flush()
            drive._drive.inject("disk_full", after=0, count=1 << 40)
            with pytest.raises(CommandError, match="No space left on device") as caught:
                store(llama, ids if step == "prefill" else ids[:, -1:], cache)
            assert f"the file {path}: " in str(caught.value)
            assert f"(disk of {tmp_path}); what the drive held before is still there" in str(caught.value)
            drive._drive.inject("disk_full", after=0, count=0)
            cache.reset()
            assert torch.equal(greedy(llama, ids, 6), stock)  # with room again, the model goes on
        assert drive._drive.rows(earlier.number, 0, 0, abi.KvKind.KEYS).tobytes() == ROWS.tobytes()
    with kind(path, engine="fast") as drive:
        assert drive._drive.check() == []
        assert drive._drive.rows(earlier.number, 0, 0, abi.KvKind.KEYS).tobytes() == ROWS.tobytes()
