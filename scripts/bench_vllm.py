"""vLLM without a tier, with the smallest SSD tier, with LMCache and with kvdrive's: the same prompts, the same tokens.

Prepared by `make bench-vllm`. Each configuration runs in a process of its own, one after the other. Writes
out/bench_vllm.json, docs/vllm.png and the tables of docs/vllm.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kvdrive.perf.kept import processor
from page_blocks import write_blocks
from vllm_bench.lmcache_server import LMCacheServer

TREE = Path(__file__).resolve().parents[1]
PAGE, PICTURE = TREE / "docs" / "vllm.md", TREE / "docs" / "vllm.png"
ENGINE = TREE / "scripts" / "vllm_bench" / "engine.py"
NAMES = {
    "none": "vLLM alone",
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
    """Runs jobs in the environments of vLLM and of LMCache; `folder`: on the SSD."""

    def __init__(self, folder: Path, model: Path, vllm: Path, lmcache: Path) -> None:
        self.folder, self.model, self.vllm, self.lmcache = folder, model, vllm, lmcache

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
                return self._run(self.vllm, JOB | job | changes)
            with LMCacheServer(self.lmcache, place, LMCACHE_GB) as server:
                return self._run(self.lmcache, JOB | job | changes | {"port": server.port, "server": server.pid})
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
            raise SystemExit(f"{NAMES[job['config']]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return dict(json.loads(out.read_text()))


def hit_rate(found: dict[str, Any]) -> float:
    return sum(found["cached"]) / sum(found["prompt"])


def same(found: list[Any]) -> str:
    return "yes" if all(one == found[0] for one in found) else "NO"


def measure(bench: Bench, parts: list[str], configs: list[str]) -> dict[str, Any]:
    """Figures by part and configuration."""
    found: dict[str, Any] = {}
    if "rounds" in parts:
        found["rounds"] = {name: bench.run(name, "rounds") for name in configs if name != "memory"}
        lasting = [name for name in ("lmcache", "ssd", "drive", "tier") if name in configs]
        found["restart"] = {name: bench.run(name, "rounds", keep=True, rounds=1) for name in lasting}
    for part, changes in (("turns", CONVERSATIONS), ("burst", {"rounds": 1})):
        if part in parts:
            three = [name for name in ("none", "memory", "ssd") if name in configs]
            found[part] = {name: bench.run(name, part, **changes) for name in three}
    return found


def tables(bench: dict[str, Any]) -> str:
    """The figures as they stand in the page."""
    found, lines = bench["found"], []
    if "rounds" in found:
        reference, given = found["rounds"]["none"]["rounds"][0]["tokens"], JOB["prompts"] * JOB["tokens"]
        lines += [
            "| 6 prompts of 3,000 tokens, 16 tokens each | first round | second round | read from disk | found "
            "| after a restart | same tokens |",
            "|---|---:|---:|---:|---:|---:|---|",
        ]
        for name, one in found["rounds"].items():
            first, second = one["rounds"]
            again = found["restart"].get(name, {}).get("rounds", [])
            answers = [reference, first["tokens"], second["tokens"], *(part["tokens"] for part in again)]
            last = f"{again[0]['seconds']:.2f} s" if again else "nothing is left"
            lines.append(
                f"| {NAMES[name]} | {first['seconds']:.2f} s | {second['seconds']:.2f} s | "
                f"{second['read'] / 1e6:.0f} MB | {sum(second['cached']):,} of {given:,} | {last} | {same(answers)} |"
            )
        lines.append("")
    for part, title in (
        ("turns", "8 conversations x 6 turns"),
        ("burst", "24 questions about 6 documents, all at once"),
    ):
        if part not in found:
            continue
        lines += [
            f"| {title} | seconds | time to the first token, median | tokens found | same tokens |",
            "|---|---:|---:|---:|---|",
        ]
        for name, one in found[part].items():
            middle = sorted(one["first"])[len(one["first"]) // 2]
            lines.append(
                f"| {NAMES[name]} | {one['seconds']:.2f} | {middle * 1e3:.0f} ms | {hit_rate(one):.0%} | "
                f"{same([found[part]['none']['tokens'], one['tokens']])} |"
            )
        lines.append("")
    where = bench["machine"]
    note = (
        f"Measured on {where['processor']}, {where['cpus']} shared cores, vLLM {bench['vllm']} on the processor, one "
        f"process after the other. {bench['model']} Files were not in the page cache: the bytes read are the kernel's "
        f"count. The block manager of vLLM had {JOB['blocks'] * 32:,} tokens. {bench['label']}".rstrip()
    )
    shown = "\n![Remaining requests, tokens, hits and disk reads of the burst](vllm.png)" if "burst" in found else ""
    return "\n".join([*lines, note]) + shown


def tokens_a_second(one: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Middles of 20 equal parts of a run, in seconds, and the tokens per second that each part generated."""
    samples = one["samples"]
    part = samples[-1]["seconds"] / 20
    counts = [
        max((s["generated"] for s in samples if s["seconds"] <= number * part), default=0) for number in range(21)
    ]
    rates = [(after - before) / part for before, after in itertools.pairwise(counts)]
    return [(number + 0.5) * part for number in range(20)], rates


def different(bench: dict[str, Any]) -> bool:
    """True if a configuration did not give the tokens of vLLM alone."""
    return "| NO |" in tables(bench)


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


def write(bench: dict[str, Any]) -> None:
    """Tables into the page, and the picture."""
    write_blocks(PAGE, {"bench-vllm": tables(bench)})
    if "burst" in bench["found"]:
        picture(bench["found"]["burst"], PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=TREE / "out" / "bench_vllm.json")
    parser.add_argument("--vllm", type=Path, default=TREE / "build" / "vllm-env")
    parser.add_argument("--lmcache", type=Path, default=TREE / "build" / "lmcache-env")
    parser.add_argument("--label", default="", help="a sentence about the machine for the page")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave docs/vllm.md as it is")
    parser.add_argument(
        "--job", type=json.loads, default={}, help="changes of JOB, in JSON, for a trial, which no page shows"
    )
    parser.add_argument("--parts", default="rounds,turns,burst")
    parser.add_argument("--configs", default="none,naive,lmcache,memory,ssd,drive")
    parser.add_argument("--model", type=Path, help="a folder; without it a small one is made")
    given = parser.parse_args()
    if given.job:
        given.page, given.json = False, given.json.with_stem(given.json.stem + "_trial")
    JOB.update(given.job)
    CONVERSATIONS.update({name: given.job[name] for name in CONVERSATIONS if name in given.job})
    given.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.json.parent) as folder:
        model = given.model or tiny(Path(folder) / "tiny")
        bench = Bench(Path(folder), model, given.vllm, given.lmcache)
        found = measure(bench, given.parts.split(","), given.configs.split(","))
    old = json.loads(given.json.read_text())["found"] if given.json.exists() else {}
    about = "A Llama of 4 million random parameters." if given.model is None else f"Model {given.model.name}."
    machine = {"processor": processor(), "cpus": os.cpu_count()}
    figures = {"machine": machine, "vllm": "0.32.0", "model": about, "label": given.label, "found": old | found}
    given.json.write_text(json.dumps(figures, indent=1) + "\n")
    if given.page:
        write(figures)
    print(tables(figures))
    if different(figures):
        raise SystemExit("the tokens of a configuration differ from those of vLLM alone")


if __name__ == "__main__":
    main()
