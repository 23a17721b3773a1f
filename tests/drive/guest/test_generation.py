"""The generation that every target runs, behind a stock Linux kernel: transformers runs in the guest."""

import json
import sys
from pathlib import Path

import pytest
import same_generation
from guest_drive import GuestDrive, script

from guest import Guest

MEMORY_MIB = 2048
pytestmark = pytest.mark.xdist_group("guest")


@pytest.mark.slow  # five minutes, mostly of importing; test_passthrough.py attends through the same path
def test_a_model_in_the_guest_generates_the_same_tokens(tmp_path, image):
    rig = GuestDrive(tmp_path / "drive.kv")
    program = Path(same_generation.__file__)
    text = script("generation.sh", PYTHON=sys.executable, PROGRAM=str(program))
    guest = Guest(image, text, {}, rig.server.port, memory_mib=MEMORY_MIB, shared=True)
    said = guest.run()
    assert not [line for line in said if line.startswith("error")], guest.report(str(said))
    (found,) = [json.loads(line.removeprefix("tokens ")) for line in said if line.startswith("tokens ")]
    assert len(found["stock"]) == same_generation.TOKENS
    device = found["nvme:/dev/ng0n3"]
    assert device["exact"] == found["stock"]
    assert device == found["emulator"]
    assert rig.drive.stats()["attention_jobs"] > 2 * same_generation.TOKENS
    assert rig.drive.check() == []
