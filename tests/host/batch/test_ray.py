"""`kvdrive batch` with Ray: two nodes on this machine share a drive, and a killed actor costs no answer."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvdrive._native import Drive, Subsystem, TcpServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: make get WHAT=ray installs it"),
]
PROMPTS = 12
# Ray's own cluster of processes on one machine, as its tests use it. It ends when its input ends.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture
def mark():
    """A variable that only the processes of this test have."""
    return f"KVDRIVE_TEST={uuid.uuid4()}"


@pytest.fixture
def cluster(mark):
    name, value = mark.split("=")
    environment = os.environ | {name: value, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        address = next(line for line in process.stdout if ":" in line).strip()
        yield address
        process.stdin.close()
        process.wait(timeout=120)


def actors(mark):
    """The processes of Ray's actors of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            named = (folder / "cmdline").read_bytes().startswith(b"ray::")
            if (
                named
                and b"Actor" in (folder / "cmdline").read_bytes()
                and mark.encode() in (folder / "environ").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def batch(checkpoint, prompts, out, *more):
    command = [sys.executable, "-m", "kvdrive", "batch", prompts, "--out", out, "--model", checkpoint]
    command += ["--max-new-tokens", 16, "--threads", 1, *more]
    return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)


def answers(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_two_nodes_share_a_drive_and_a_dead_actor_costs_no_answer(checkpoint, tmp_path, cluster, mark):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"The drive number {i} keeps"}) + "\n" for i in range(PROMPTS)))
    drive = Drive(tmp_path / "shared.kv", "fast", 1, 1 << 28)
    server = TcpServer(Subsystem(drive), "127.0.0.1", 0)
    target = f"tcp://127.0.0.1:{server.port}"
    with batch(checkpoint, prompts, tmp_path / "alone.jsonl") as alone:
        assert alone.wait() == 0, alone.stderr.read()
    out = tmp_path / "answers.jsonl"
    more = ["--target", target, "--actors", 2, "--ray-address", cluster]
    with batch(checkpoint, prompts, out, *more) as running:
        end = time.monotonic() + 240
        while not answers(out):
            assert running.poll() is None, running.stderr.read()
            assert time.monotonic() < end, "no answer came"
            time.sleep(0.05)
        killed = actors(mark)
        assert killed
        os.kill(killed[0], signal.SIGKILL)
        assert running.wait(timeout=300) == 0, running.stderr.read()
    found = answers(out)
    assert sorted(answer["id"] for answer in found) == sorted(str(i + 1) for i in range(PROMPTS))
    by_id = {answer["id"]: answer for answer in answers(tmp_path / "alone.jsonl")}
    assert {answer["id"]: answer for answer in found} == by_id
    assert server.counters()["associations"] > 2
