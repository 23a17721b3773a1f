"""vLLM's server with DriveTier below its memory tier: there scheduler and worker are processes of their own."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager

import pytest

from bench.sessions import vllm as bench_vllm

pytestmark = pytest.mark.slow
ENVIRONMENT = bench_vllm.ROOT / "build" / "vllm-env"
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
OPTIONS = [
    "--dtype",
    "float32",
    "--max-model-len",
    "512",
    "--enforce-eager",
    "--max-num-seqs",
    "4",
    "--num-gpu-blocks-override",
    "40",
]
OPTIONS += ["--block-size", "32", "--skip-tokenizer-init", "--enable-prompt-tokens-details"]
START_S = 400


@contextmanager
def server(model, path):
    """The address of a server of `model` whose blocks are in the file `path`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    second = {"type": "DriveTier", "module_path": "kvdrive.plugins.vllm.tier", "path": str(path)}
    extra = {"spec_name": "ProcessorTieringSpec", "spec_module_path": "kvdrive.plugins.vllm.processor"}
    extra |= {"cpu_bytes_to_use": 16 << 20, "secondary_tiers": [second]}
    tiers = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    command = [ENVIRONMENT / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--host", "127.0.0.1", "--port", str(port), *OPTIONS, "--kv-transfer-config", json.dumps(tiers)]
    log = path.with_suffix(".log")
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | VARIABLES)
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, "the server does not start"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1/completions"
    finally:
        process.terminate()
        process.wait(60)


def ask(address: str, model) -> tuple[list[int], int]:
    """The tokens of an answer, and how many tokens of the prompt were found."""
    body = {"model": str(model), "prompt": [number * 7 % 997 + 3 for number in range(400)], "max_tokens": 8}
    body |= {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        answer = json.load(reply)
    return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def stored(index, blocks: int) -> None:
    """Wait until the index names so many whole blocks: stores continue after an answer."""
    deadline = time.monotonic() + 60
    with closing(sqlite3.connect(index)) as database:
        while database.execute("SELECT count(*) FROM blocks WHERE owner = ''").fetchone()[0] < blocks:
            assert time.monotonic() < deadline, "the blocks are not stored"
            time.sleep(0.05)


def test_a_server_finds_its_blocks_after_a_restart(tmp_path):
    if not ENVIRONMENT.exists():
        pytest.skip("vLLM is not installed: make get WHAT=vllm")
    model = bench_vllm.tiny(tmp_path / "model")
    found = []
    for _ in range(2):
        with server(model, tmp_path / "blocks.kv") as address:
            found.append(ask(address, model))
            stored(tmp_path / "blocks.kv.index", 12)
    (first, none), (second, cached) = found
    assert (none, cached) == (0, 384)
    assert second == first
