"""vLLM itself on the plugin, in its own environment: whatever happens to the blocks, the tokens stay the same."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench.sessions import vllm as bench_vllm

pytestmark = pytest.mark.slow
ENVIRONMENT = bench_vllm.ROOT / "build" / "vllm-env"
SMALL = {"prompts": 3, "tokens": 400, "blocks": 20, "factor": 1, "length": 512, "bytes": 1 << 30, "answer": 8}
CHUNKS = 3 * 12  # whole blocks of 32 tokens in three prompts
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, -1))"
KILL = """
import os, signal
from kvdrive.prefix.blocks.file import SlotFile
write, left = SlotFile.write, [7]
def killing(self, *given):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, *given)
SlotFile.write = killing
"""

BLOCKS = {"blocks.kv", "blocks.kv.index"}
OPEN_UMASK = """
import json, os
from pathlib import Path
from kvdrive.prefix.blocks.store import BlockStore
os.umask(0)
def looking(close):
    def look(self):
        place = Path({folder!r})
        modes = {{one.name: one.stat().st_mode & 0o777 for one in place.rglob("*")}}
        (place.parent / "modes").write_text(json.dumps(modes))
        close(self)
    return look
BlockStore.close = looking(BlockStore.close)
"""

OTHER_VERSION = """
import importlib
import vllm
from kvdrive.errors import InputError
vllm.__version__ = "0.33.0"
for name in ("spec", "tier", "processor"):
    try:
        importlib.import_module("kvdrive.plugins.vllm." + name)
    except InputError as error:
        print(error)
"""


class Engines:
    """Runs scripts/vllm_bench/engine.py on a small model; `before`: statements that run in the process first."""

    def __init__(self, folder: Path) -> None:
        if not ENVIRONMENT.exists():
            pytest.skip("vLLM is not installed: make get WHAT=vllm")
        self.folder = folder
        self.model = bench_vllm.tiny(folder / "model")
        self.runs = 0

    def start(self, config: str = "ssd", before: str = "", **changes) -> tuple[subprocess.Popen, Path]:
        self.runs += 1
        path, out = self.folder / f"job{self.runs}.json", self.folder / f"out{self.runs}.json"
        place = self.folder / "blocks"
        place.mkdir(exist_ok=True)
        job = bench_vllm.JOB | SMALL | {"config": config, "workload": "rounds", "folder": str(place), "out": str(out)}
        path.write_text(json.dumps(job | {"model": str(self.model)} | changes))
        program = f"{before}\nimport runpy, sys\nsys.argv = ['engine', {str(path)!r}]\n"
        program += f"runpy.run_path({str(bench_vllm.ENGINE)!r}, run_name='__main__')"
        command = [ENVIRONMENT / "bin" / "python", "-c", program]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), out

    def run(self, config: str = "ssd", before: str = "", **changes) -> dict:
        process, out = self.start(config, before, **changes)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said[-3000:]
        return json.loads(out.read_text())

    @property
    def file(self) -> Path:
        return self.folder / "blocks" / "blocks.kv"


@pytest.fixture
def engines(tmp_path):
    return Engines(tmp_path)


def tokens(found: dict) -> list:
    """The answers of the first round; those of later rounds must be the same."""
    assert all(one["tokens"] == found["rounds"][0]["tokens"] for one in found["rounds"])
    return found["rounds"][0]["tokens"]


@pytest.mark.parametrize("factor", [1, 3, 8])
def test_second_rounds_and_later_processes_find_the_blocks(engines, factor):
    expected = tokens(engines.run("none", rounds=1))
    whole = 400 // (32 * factor) * 32 * factor
    found = engines.run(factor=factor)
    assert tokens(found) == expected
    assert [one["cached"] for one in found["rounds"]] == [[0] * 3, [whole] * 3]
    again = engines.run(factor=factor, rounds=1)
    assert tokens(again) == expected
    assert again["rounds"][0]["cached"] == [whole] * 3
    assert again["store"]["written"] == 0
    assert again["store"]["read"] == 3 * whole // (32 * factor)


def test_vllms_memory_tier_alone_ends_with_its_process(engines):
    """The benchmark's contender between vLLM alone and blocks on an SSD."""
    expected = tokens(engines.run("none", rounds=1))
    for _ in range(2):
        found = engines.run("cpu")
        assert tokens(found) == expected
        assert [one["cached"] for one in found["rounds"]] == [[0] * 3, [384] * 3]
    assert not list((engines.folder / "blocks").iterdir())


def test_blocks_on_a_drive_are_found_by_later_processes(engines):
    expected = tokens(engines.run("none", rounds=1))
    bench_vllm.make_drive(engines.folder / "blocks" / "drive.kv")
    assert tokens(engines.run("drive", rounds=1)) == expected
    found = engines.run("drive", rounds=1)
    assert tokens(found) == expected
    assert found["rounds"][0]["cached"] == [384] * 3
    assert found["store"]["written"] == 0


def test_blocks_below_vllms_memory_tier_are_found_by_later_processes(engines):
    """Memory for 16 of the 36 blocks, then for 8: as much of a prompt is found as memory holds."""
    expected = tokens(engines.run("none", rounds=1))
    found = engines.run("tier", memory=16 << 17)
    assert tokens(found) == expected
    assert [one["cached"] for one in found["rounds"]] == [[0] * 3, [384] * 3]
    assert found["store"]["written"] == CHUNKS
    assert found["store"]["read"] > 0
    again = engines.run("tier", memory=8 << 17, rounds=1)
    assert tokens(again) == expected
    assert again["rounds"][0]["cached"] == [8 * 32] * 3
    assert again["store"]["read"] == 3 * 8


@pytest.mark.parametrize(("config", "names"), [("ssd", BLOCKS), ("tier", BLOCKS), ("drive", {"drive.kv"})])
def test_files_are_their_owners_alone_whatever_the_umask(engines, config, names):
    """While the engine has them open, too."""
    place = engines.folder / "blocks"
    if config == "drive":
        bench_vllm.make_drive(place / "drive.kv")
    engines.run(config, before=OPEN_UMASK.format(folder=str(place)), rounds=1)
    looked = json.loads((engines.folder / "modes").read_text())
    assert looked.keys() >= names | ({"blocks.kv.index-wal", "blocks.kv.index-shm"} if config != "drive" else set())
    there = {one.name: one.stat().st_mode & 0o777 for one in place.rglob("*")}
    assert set(there) >= names
    assert set((looked | there).values()) == {0o600}


def test_damaged_blocks_are_computed_again(engines):
    expected = tokens(engines.run(rounds=1))
    with engines.file.open("r+b") as file:
        for place in range(1000, engines.file.stat().st_size, 5 * 135_168):
            file.seek(place)
            file.write(b"damage")
    found = engines.run(rounds=4)  # a round finds no damage behind a prompt's first damaged block
    assert tokens(found) == expected
    assert found["store"]["damaged"] > 0
    assert found["rounds"][-1]["cached"] == [384] * 3, "they were written again"


def test_a_full_disk_costs_hits_and_nothing_else(engines):
    expected = tokens(engines.run("none", rounds=1))
    found = engines.run(before=NO_ROOM)
    assert tokens(found) == expected
    assert found["store"]["failed_writes"] > 0
    assert engines.file.stat().st_size <= 1_500_000


def test_an_engine_that_is_killed_in_a_store_leaves_whole_blocks(engines):
    expected = tokens(engines.run("none", rounds=1))
    process, _ = engines.start(before=KILL)
    process.communicate(timeout=600)
    assert process.returncode == -9
    found = engines.run()
    assert tokens(found) == expected
    assert found["store"]["damaged"] == 0


def test_other_weights_of_the_same_name_find_nothing(engines):
    old = tokens(engines.run(rounds=1))
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(engines.model / "model.safetensors")
    name = next(name for name in weights if "layers.0.self_attn.k_proj" in name)
    weights[name] = weights[name] + 0.05 * torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(1))
    save_file(weights, engines.model / "model.safetensors", metadata={"format": "pt"})
    expected = tokens(engines.run("none", rounds=1))
    assert expected != old
    found = engines.run()
    assert tokens(found) == expected
    assert found["rounds"][0]["cached"] == [0] * 3


@pytest.mark.parametrize("config", ["ssd", "tier"])
def test_another_configuration_of_the_same_weights_finds_nothing(engines, config):
    """Overrides of a command line or a call, of which no file tells."""
    overrides = {"rms_norm_eps": 0.5}
    assert engines.run(config, rounds=1)["rounds"][0]["cached"] == [0] * 3
    expected = tokens(engines.run("none", rounds=1, overrides=overrides))
    found = engines.run(config, rounds=1, overrides=overrides)
    assert tokens(found) == expected
    assert found["rounds"][0]["cached"] == [0] * 3
    assert engines.run(config, rounds=1, overrides=overrides)["rounds"][0]["cached"] != [0] * 3


def test_blocks_are_evicted_while_others_load(engines):
    expected = tokens(engines.run("none", rounds=1))
    found = engines.run(bytes=20 * 135_168, rounds=3)
    assert tokens(found) == expected
    assert found["store"]["evictions"] > CHUNKS
    assert engines.file.stat().st_size <= 20 * 135_168


def test_blocks_in_use_stay_when_others_are_evicted(engines):
    """Room for two and a half prompts: the third takes that of the second, because the first was asked again."""
    found = engines.run(bytes=30 * 135_168, order=[0, 1, 0, 2, 0], rounds=1)
    assert found["store"]["evictions"] > 0
    assert found["rounds"][0]["cached"] == [0, 0, 384, 0, 384]


def test_two_engines_share_a_file(engines):
    expected = tokens(engines.run("none", rounds=1))
    running = [engines.start(rounds=2) for _ in range(2)]
    for process, out in running:
        said, _ = process.communicate(timeout=900)
        assert process.returncode == 0, said[-3000:]
        assert tokens(json.loads(out.read_text())) == expected
    again = engines.run(rounds=1)
    assert tokens(again) == expected
    assert again["rounds"][0]["cached"] == [384] * 3


def test_other_versions_are_refused_when_vllm_loads_the_plugin(engines):
    command = [ENVIRONMENT / "bin" / "python", "-c", OTHER_VERSION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, check=True)
    assert done.stdout.count("this plugin was tested with vLLM 0.32.0 and this is 0.33.0: ") == 3
