"""`HfCache.erase` removes the tokens of a cache from all drives' files. The cache can be filled again."""

import pytest
import torch
from small_models import CONFIGS, prompts, random_model
from stored_bytes import occurrences

from kvdrive import abi
from kvdrive.generation.generate import greedy
from kvdrive.nvme.commands import flush, session_erase
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

PROMPT = prompts(2, 100)
D = 32


def rows_of(drive):
    """Some rows of V of each head on a drive, as bytes. In layer 1, equal tokens have different rows."""
    native, found = drive._open_drive(), []
    for session in native.sessions():
        for head in native.heads(session):
            if head["kind"] == abi.KvKind.VALUES and head["layer"] == 1:
                rows = native.rows(session, head["layer"], head["head"], abi.KvKind.VALUES).reshape(-1, 2 * D)
                found += [row.tobytes() for row in rows[::16]]
    return found


@pytest.mark.parametrize("kind", [Emulator, CpuDrive])
def test_nothing_of_a_cache_is_left(tmp_path, kind):
    paths = [tmp_path / f"{number}.kv" for number in range(2)]
    drives = [kind(path, threads=1, capacity_bytes=1 << 26) for path in paths]
    model = random_model(CONFIGS["llama"])
    with attach(model, drives, spill=4) as attached:
        cache, other = attached.cache(), attached.cache()
        tokens = greedy(model, PROMPT, 9, past_key_values=cache)
        rows = [rows_of(drive) for drive in drives]
        greedy(model, PROMPT.flip(0) + 1, 9, past_key_values=other)
        kept = [set(rows_of(drive)) - set(mine) for drive, mine in zip(drives, rows, strict=True)]
        for drive in drives:
            drive.execute(flush())
        stored = [sum(occurrences(path, row) for row in mine) for path, mine in zip(paths, rows, strict=True)]
        assert min(stored) > 0
        cache.batch.erase()
        for path, drive, mine, theirs in zip(paths, drives, rows, kept, strict=True):
            assert not any(occurrences(path, row) for row in mine)
            assert theirs == set(rows_of(drive))
        assert cache.get_seq_length() == 0
        assert torch.equal(greedy(model, PROMPT, 9, past_key_values=cache), tokens)
    for drive in drives:
        drive.close()


def test_a_refusal_names_the_command(target):
    with pytest.raises(CommandError, match="SESSION_ERASE failed: UNKNOWN_SESSION"):
        target.execute(session_erase(7))
