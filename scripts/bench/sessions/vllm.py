"""vLLM without a tier, with the smallest SSD tier, with LMCache and with kvdrive's: the same prompts, the same tokens.

Each configuration runs in a process of its own, one after the other, in the environment of vLLM (`make get WHAT=vllm`)
or of LMCache (`make get WHAT=lmcache`).
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.errors import InputError
from kvdrive.tree import ROOT
from vllm_bench.lmcache_server import LMCacheServer

PICTURE = ROOT / "docs/results/vllm.png"
ENGINE = ROOT / "scripts" / "vllm_bench" / "engine.py"
ENVIRONMENTS = ROOT / "build" / "vllm-env", ROOT / "build" / "lmcache-env"
_VLLM = "0.32.0"
NAMES = {
    "none": "vLLM alone",
    "cpu": "vLLM's memory tier",
    "naive": "the smallest SSD tier",
    "lmcache": "LMCache 0.5.6, files on the SSD",
    "memory": "kvdrive, file in memory",
    "ssd": "kvdrive, file on the SSD",
    "drive": "kvdrive, values on a drive",
    "tier": "kvdrive, below vLLM's memory tier",
}
_SECONDS = 1200  # the most that an engine may take
JOB = {
    "dtype": "float32", "length": 4096, "blocks": 200, "bytes": 4 << 30, "factor": 4, "prompts": 6, "tokens": 3000,
    "answer": 16, "rounds": 2, "turns": 6, "question": 400, "questions": 24, "memory": 50 << 20,
}  # fmt: skip
LMCACHE_GB = 0.05  # and "memory" above: less than the 72 MB of a round, so a second round is read from files
CONVERSATIONS = {"prompts": 8, "answer": 32}


def tiny(folder: Path) -> Path:
    """A Llama of 4 million parameters with random weights, the same on every machine."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    shape = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "head_dim": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=1024, tie_word_embeddings=True, **shape, **heads))
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.08)
    model.save_pretrained(folder)
    return folder


def make_drive(path: Path) -> None:
    """A drive for values, where there is none."""
    from kvdrive.targets.cpu import CpuDrive

    with CpuDrive(path, 1, 2 << 30):
        pass


class Bench:
    """Runs jobs in the environments of vLLM and of LMCache; `folder`: on the SSD; `sizes`: changes of JOB."""

    def __init__(self, folder: Path, model: Path, vllm: Path, lmcache: Path, sizes: dict[str, Any]) -> None:
        self.folder, self.model, self.vllm, self.lmcache, self.sizes = folder, model, vllm, lmcache, sizes

    def run(self, config: str, workload: str, *, keep: bool = False, **changes: Any) -> dict[str, Any]:
        """The figures of one process. `keep`: what an earlier process stored is still there."""
        place = Path("/dev/shm/kvdrive-bench") if config == "memory" else self.folder / config
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        if config == "drive":
            make_drive(place / "drive.kv")
        job = {"model": str(self.model), "folder": str(place), "config": config, "workload": workload}
        print(f"{NAMES[config]}: {workload} ...", flush=True)
        try:
            if config != "lmcache":
                return self._run(self.vllm, JOB | job | changes | self.sizes)
            with LMCacheServer(self.lmcache, place, LMCACHE_GB) as server:
                return self._run(
                    self.lmcache, JOB | job | changes | self.sizes | {"port": server.port, "server": server.pid}
                )
        finally:
            if config == "memory":
                shutil.rmtree(place, ignore_errors=True)

    def _run(self, environment: Path, job: dict[str, Any]) -> dict[str, Any]:
        path, out = self.folder / "job.json", self.folder / "out.json"
        out.unlink(missing_ok=True)
        path.write_text(json.dumps(job | {"out": str(out)}))
        command = [environment / "bin" / "python", ENGINE, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode or not out.exists():
            raise InputError(f"{NAMES[job['config']]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return dict(json.loads(out.read_text()))


def hit_rate(found: dict[str, Any]) -> float:
    return sum(found["cached"]) / sum(found["prompt"])


def measure(bench: Bench) -> dict[str, Any]:
    """Figures by part and configuration."""
    configs = [name for name in NAMES if name not in ("memory", "tier")]
    found: dict[str, Any] = {"rounds": {name: bench.run(name, "rounds") for name in configs}}
    lasting = ("lmcache", "ssd", "drive")
    found["restart"] = {name: bench.run(name, "rounds", keep=True, rounds=1) for name in lasting}
    for part, changes in (("turns", CONVERSATIONS), ("burst", {"rounds": 1})):
        found[part] = {name: bench.run(name, part, **changes) for name in ("none", "cpu", "memory", "ssd")}
    return found


def run(setup: Setup) -> list[Block]:
    """Tables of rounds, conversations and a burst. Raises InputError where a configuration gives other tokens."""
    missing = [str(one) for one in ENVIRONMENTS if not (one / "bin" / "python").exists()]
    if missing:
        raise InputError(f"{' and '.join(missing)} is missing: make get WHAT=vllm and make get WHAT=lmcache")
    sizes = setup.size({}, {"prompts": 2, "tokens": 500, "turns": 2, "questions": 4})
    with setup.folder() as folder:
        found = measure(Bench(folder, tiny(folder / "tiny"), *ENVIRONMENTS, sizes))
    if different(found):
        raise InputError("the tokens of a configuration differ from those of vLLM alone")
    if not setup.quick:
        picture(found["burst"], PICTURE)
    return [Block("vllm", tables(found), found)]


def answers(found: dict[str, Any], name: str) -> list[Any]:
    """The tokens of all rounds of a configuration, and of those behind a restart."""
    again = found["restart"].get(name, {}).get("rounds", [])
    return [one["tokens"] for one in (*found["rounds"][name]["rounds"], *again)]


def different(found: dict[str, Any]) -> bool:
    """True if a configuration did not give the tokens of vLLM alone."""
    wanted = found["rounds"]["none"]["rounds"][0]["tokens"]
    rounds = all(one == wanted for name in found["rounds"] for one in answers(found, name))
    parts = (found[part] for part in ("turns", "burst") if part in found)
    return not rounds or any(one["tokens"] != part["none"]["tokens"] for part in parts for one in part.values())


def tables(found: dict[str, Any]) -> list[Table]:
    """A table for each workload."""
    wanted, given = found["rounds"]["none"]["rounds"][0]["tokens"], JOB["prompts"] * JOB["tokens"]
    rows = []
    for name, one in found["rounds"].items():
        first, second = one["rounds"]
        again = found["restart"].get(name, {}).get("rounds", [])
        last = f"{again[0]['seconds']:.2f} s" if again else "nothing is left"
        same = "yes" if all(tokens == wanted for tokens in answers(found, name)) else "NO"
        seconds = (f"{first['seconds']:.2f} s", f"{second['seconds']:.2f} s", f"{second['read'] / 1e6:.0f} MB")
        rows.append([NAMES[name], *seconds, f"{sum(second['cached']):,} of {given:,}", last, same])
    head = ["6 prompts of 3,000 tokens, 16 tokens each", "first round", "second round", "read from disk", "found"]
    made = [Table([*head, "after a restart", "same tokens"], rows, align="lrrrrrl")]
    for part, title in (
        ("turns", "8 conversations x 6 turns"),
        ("burst", "24 questions about 6 documents, all at once"),
    ):
        if part in found:
            made.append(of_requests(title, found[part], NOTE if part == "burst" else ""))
    return made


NOTE = (
    f"vLLM {_VLLM} on the processor, one process after the other. A Llama of 4 million random parameters. Files were "
    "not in the page cache: the bytes read are the kernel's count. The block manager of vLLM had "
    f"{JOB['blocks'] * 32:,} tokens.\n\n![Remaining requests, tokens, hits and disk reads of the burst](vllm.png)"
)


def of_requests(title: str, found: dict[str, Any], note: str) -> Table:
    """Conversations or a burst."""
    rows = []
    for name, one in found.items():
        middle = sorted(one["first"])[len(one["first"]) // 2]
        same = "yes" if one["tokens"] == found["none"]["tokens"] else "NO"
        rows.append([NAMES[name], f"{one['seconds']:.2f}", f"{middle * 1e3:.0f} ms", f"{hit_rate(one):.0%}", same])
    head = [title, "seconds", "time to the first token, median", "tokens found", "same tokens"]
    return Table(head, rows, note, align="lrrrl")


def tokens_a_second(one: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Middles of 20 equal parts of a run, in seconds, and the tokens per second that each part generated."""
    samples = one["samples"]
    part = samples[-1]["seconds"] / 20
    counts = [
        max((s["generated"] for s in samples if s["seconds"] <= number * part), default=0) for number in range(21)
    ]
    rates = [(after - before) / part for before, after in itertools.pairwise(counts)]
    return [(number + 0.5) * part for number in range(20)], rates


def picture(found: dict[str, Any], path: Path) -> None:
    """Remaining requests, tokens a second, hit rate and disk traffic of the burst."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    (left, right), (low, last) = figure.subplots(2, 2)
    for number, (name, one) in enumerate(found.items()):
        seconds = [0.0, *(sample["seconds"] for sample in one["samples"])]
        middles, rates = tokens_a_second(one)
        left.step(
            seconds,
            [len(one["tokens"]), *(sample["remaining"] for sample in one["samples"])],
            where="post",
            label=NAMES[name],
        )
        right.plot(middles, rates, label=NAMES[name])
        for way, style in (("read", "-"), ("written", "--")):
            moved = [0.0, *(sample[way] / 2**20 for sample in one["samples"])]
            last.plot(seconds, moved, style, color=f"C{number}", label=f"{NAMES[name]}: {way}")
    names = [NAMES[name].replace(", ", ",\n") for name in found]
    low.bar(names, [100 * hit_rate(one) for one in found.values()])
    left.set(title="Remaining requests", xlabel="s")
    right.set(title="Generated tokens per second", xlabel="s")
    low.set(title="Tokens of the prompts that were found", ylabel="%", ylim=(0, 100))
    last.set(title="Disk traffic since the start", xlabel="s", ylabel="MiB")
    for axes in (left, right, last):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)
