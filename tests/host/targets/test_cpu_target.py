"""K and V in a file on this machine's disk: the emulator's bits, more data than memory, and a kill."""

import os
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import filled_drive
import forked
import pytest
import small_models
import torch
from filled_drive import LAYER_MIB, LAYERS, MIB, fill_and_attend
from small_models import CONFIGS, prompts, random_model
from transformers import Qwen3Config

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, TargetError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import DriveOptions, open_drives

LONG = Qwen3Config(**CONFIGS["qwen3"].to_dict() | {"max_position_embeddings": 4096})
PROMPT = prompts(1, 3000)


@pytest.fixture(scope="module")
def qwen():
    return random_model(LONG)  # 2 layers, 4 KV heads of 64


def logits(model, drives, options, folder):
    """Logits of 6 steps, and the bytes read from disk. The prompt is made durable first, to be read from there."""
    with attach(model, drives, config=options) as attachment, torch.no_grad():
        cache = attachment.cache()
        model(PROMPT, past_key_values=cache, logits_to_keep=1)
        attachment.save(cache, folder / "chat.json")
        before, found = drives.stats(), []
        for token in prompts(1, 6, seed=3)[0]:
            found.append(model(token.view(1, 1), past_key_values=cache).logits)
        return torch.cat(found), drives.stats().file_bytes_read - before.file_bytes_read


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(RunConfig.of(spill=2), marks=pytest.mark.slow),
        RunConfig.of(attention="sparf", ratio=Fraction(1, 8), spill=2),
    ],
)
def test_any_number_of_cpu_drives_gives_the_emulators_bits(tmp_path, qwen, options):
    found = {}
    for target, count in (("emulator", 1), ("cpu", 1), ("cpu", 2)):
        folder = tmp_path / f"{target}{count}"
        with open_drives(DriveOptions(threads=1, folder=folder, drives=count, target=target)) as drives:
            found[target, count], read = logits(qwen, drives, options, folder)
        assert (read > 0) == (target == "cpu")
    assert torch.equal(found["cpu", 1], found["emulator", 1])
    assert torch.equal(found["cpu", 2], found["emulator", 1])


def test_compiled_kernels_read_the_same_file(tmp_path):
    model = random_model(CONFIGS["llama"])
    ids = prompts(1, 40)
    tokens = []
    for engine in ("fast", "hls"):
        with CpuDrive(tmp_path / f"{engine}.kv", 1, 1 << 26, engine=engine) as drive, attach(model, drive) as attached:
            tokens.append(greedy(model, ids, 8, past_key_values=attached.cache()))
            assert drive.device_ns() is None
    assert torch.equal(tokens[0], tokens[1])
    assert torch.equal(tokens[0], greedy(model, ids, 8))


TESTS = [
    str(Path(file).parent) for file in (__file__, small_models.__file__, forked.__file__)
]  # for the child's imports


def test_more_keys_and_values_than_memory(tmp_path):
    """128 MiB of K and V in a process that is limited to 100 MiB of memory and uses less than 50 MiB."""
    command = [sys.executable, filled_drive.__file__, tmp_path / "cpu.kv", str(100 * MIB)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    digest, peak, read = child.stdout.split()
    assert int(read) > LAYERS * LAYER_MIB * MIB - 20 * MIB  # the rows written last were still in memory
    assert int(peak) < 50 * MIB
    with Emulator(tmp_path / "emulated.kv", "fast", capacity_bytes=1 << 28) as drive:
        assert fill_and_attend(drive) == digest


KILLED = """
    import sys, time, torch
    sys.path[:0] = {tests!r}
    from pathlib import Path
    from test_cpu_target import LONG, PROMPT, CpuDrive, attach, random_model
    torch.set_num_threads(1)
    model, folder = random_model(LONG), Path({folder!r})
    with attach(model, CpuDrive(folder / "cpu.kv", 1), spill=4) as attached, torch.no_grad():
        cache, ids = attached.cache(), PROMPT
        for step in range(10000):
            ids = model(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1)[:, None]
            if step % 5 == 0:
                attached.save(cache, folder / "chat.json")
            print(step, flush=True)
"""


def test_the_file_opens_after_a_kill(tmp_path, qwen):
    script = textwrap.dedent(KILLED.format(tests=TESTS, folder=str(tmp_path)))
    child = forked.popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if int(line) == 12:
            os.kill(child.pid, signal.SIGKILL)
            break
    child.wait()
    child.stdout.close()
    with CpuDrive(tmp_path / "cpu.kv", 1) as drive:
        assert drive._drive.check() == []
        with attach(qwen, drive) as attached:
            cache = attached.reopen(tmp_path / "chat.json")
            kept = cache.batch.token_ids()
            assert kept.shape[1] >= 3000 + 10
            cache.crop(-1)
            text = greedy(qwen, kept, 4, past_key_values=cache)
            assert drive.stats().file_reads > 0
    with Emulator(tmp_path / "emulated.kv", "fast") as drive, attach(qwen, drive) as attached:
        assert torch.equal(text, greedy(qwen, PROMPT, text.shape[1] - 3000, past_key_values=attached.cache()))


def test_what_does_not_fit_together_is_refused(tmp_path):
    Emulator(tmp_path / "flash.kv", "fast", capacity_bytes=1 << 24).close()
    with pytest.raises(TargetError, match="it was made as 970pro, not plain"):
        CpuDrive(tmp_path / "flash.kv")
    with pytest.raises(InputError, match="there is no target 'gpu'"):
        DriveOptions(target="gpu")
