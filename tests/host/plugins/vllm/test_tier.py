"""DriveTier below vLLM's own tiering manager: tier_checks.py runs in vLLM's environment, without a model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.sessions import vllm as bench_vllm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("vllm-tier")]
ENVIRONMENT = bench_vllm.ROOT / "build" / "vllm-env"
CHECKS = Path(__file__).with_name("tier_checks.py")
SLOT = 12_288


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if not ENVIRONMENT.exists():
        pytest.skip("vLLM is not installed: make get WHAT=vllm")
    command = [ENVIRONMENT / "bin" / "python", CHECKS, tmp_path_factory.mktemp("tiers")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    return json.loads(line.removeprefix("found "))


def test_blocks_are_found_in_memory_then_in_the_file_and_by_other_engines(found):
    assert found["comes_back"] == {
        "memory": ["HIT HOST"] * 3 + ["MISS"],
        "file": ["HIT DISK"] * 3 + ["MISS"],
        "other engine": ["HIT DISK"] * 3,
        "restart": ["HIT DISK"] * 3,
        "written": 0,
        "pinned": 0,
        "other weights, other tenant": [["MISS"], ["MISS"]],
        "left in memory": [],
    }


def test_a_damaged_block_is_a_miss_and_is_stored_again(found):
    assert found["damaged"] == {
        "first": ["HIT DISK", "MISS"],
        "damaged": 1,
        "pinned": 0,
        "stored again": ["HIT DISK"] * 3,
    }


def test_a_full_disk_costs_hits_and_pins_nothing(found):
    assert found["full_disk"] == {"hits": 40, "misses": 1, "pinned": 0, "bytes": 40 * SLOT, "failed": 10}


def test_a_prompt_longer_than_the_first_tier_gets_what_fits(found):
    assert found["small_memory"] == {
        "found": ["HIT DISK"] * 4 + ["MISS"],
        "pinned": 0,
        "evictions": 2,
        "bytes": 4 * SLOT,
        "together": ["HIT DISK", "HIT DISK", "MISS"],
    }


def test_a_block_counts_as_used_when_it_is_loaded(found):
    assert found["used_when_loaded"] == {"said": ["HIT"], "there": [0, 1, 3, 4]}


def test_a_reset_forgets_the_blocks_because_the_weights_may_be_new(found):
    again = {"stored again": ["HIT DISK"] * 2, "other engine": ["MISS"]}
    assert found["reset"] == {"found": ["MISS"], "blocks": 0} | again


def test_blocks_are_values_on_a_drive(found):
    assert found["on_a_drive"] == {"restart": ["HIT DISK"] * 3 + ["MISS"], "written": 0}


def test_what_cannot_be_used_is_refused_in_a_sentence(found):
    assert "needs either 'path'" in found["refused"]["no place"]
    assert "has no 'byte'" in found["refused"]["unknown option"]
    assert "give 'model_fingerprint'" in found["refused"]["no weights"]
    assert "choose 1 to 8" in found["refused"]["nine blocks"]
    assert "one worker and one KV cache group" in found["refused"]["two workers"]
