"""Sessions, measured: time to the first token of a turn that finds its history on the drive, beside computing it again;
bytes written for a turn; look-ups a second in an index of a million blocks. Writes the table of docs/sessions.md.

The history is random tokens of the shipped model, on a drive of the cpu target whose file is not in the page cache.
Times on a busy machine mean little: the ratios are taken within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from kvdrive.generation import checkpoints
from kvdrive.perf.kept import processor
from kvdrive.plugins.transformers import attach
from kvdrive.sessions.entry import NewEntry
from kvdrive.sessions.index import Index
from kvdrive.targets.cpu import CpuDrive
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sessions.md"
NEW, BLOCKS_OF_A_SESSION, PROBES = 16, 100, 300


def forget(path: Path) -> None:
    """Ask the kernel to drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def flash_bytes(drive: CpuDrive) -> int:
    """Bytes that the drive has written: pages of data, and its journal."""
    found = drive._drive.flash_stats()
    return int(found["groups_written"] * 4096 + found["journal_bytes"])


def turns(tokens: int, rounds: int) -> dict[str, float]:
    """Medians over the rounds: seconds of `recompute` and of `fork`, and bytes written for the last turn."""
    model = checkpoints.load("mini", "float32", "cpu").model
    vocabulary = model.config.vocab_size
    recompute, fork, ratios, written = [], [], [], []
    with tempfile.TemporaryDirectory(dir=Path.cwd() / "out") as folder, torch.no_grad():
        path = Path(folder) / "drive.kv"
        history = torch.randint(2, vocabulary, (1, tokens), generator=torch.Generator().manual_seed(1))
        for number in range(rounds + 1):
            question = torch.randint(2, vocabulary, (1, NEW), generator=torch.Generator().manual_seed(2 + number))
            with CpuDrive(path, 2, 1 << 32) as drive, attach(model, drive, sessions=True) as attached:
                forget(path)
                before = flash_bytes(drive)
                began = time.perf_counter()
                cache = attached.sessions.cache(ids := torch.cat([history, question], dim=1))
                assert cache.get_seq_length() == (tokens if number else 0)
                model(ids[:, cache.get_seq_length() :], past_key_values=cache, logits_to_keep=1)
                seconds = time.perf_counter() - began
                attached.sessions.release(cache)
                after = flash_bytes(drive)
            if number == 0:
                continue
            began = time.perf_counter()
            model(ids, logits_to_keep=1)
            again = time.perf_counter() - began
            recompute.append(again)
            fork.append(seconds)
            ratios.append(again / seconds)
            written.append(after - before)
    return {
        "tokens": tokens,
        "new_tokens": NEW,
        "recompute_seconds": statistics.median(recompute),
        "fork_seconds": statistics.median(fork),
        "ratio": statistics.median(ratios),
        "bytes_written": statistics.median(written),
        "bytes_of_new_tokens": NEW * bytes_per_token(model),
    }


def bytes_per_token(model: torch.nn.Module) -> int:
    """K and V of one token in binary16."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 4 * config.num_hidden_layers * config.num_key_value_heads * head_dim


def lookups(blocks: int) -> dict[str, float]:
    """Blocks looked up in a second in an index of `blocks` blocks."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(dir=Path.cwd() / "out") as folder:
        index, chains = Index(Path(folder) / "index"), []
        with index.transaction():
            for number in range(blocks // BLOCKS_OF_A_SESSION):
                keys = [rng.getrandbits(62) for _ in range(BLOCKS_OF_A_SESSION)]
                entry = NewEntry(7, "", "", [[0, number, 0, 1]], "", 10, 64, tokens=6400, last=keys[-1])
                index.add(entry, keys)
                chains.append(keys)
        probes = rng.sample(chains, min(PROBES, len(chains)))
        began = time.perf_counter()
        for keys in probes:
            assert index.find(7, keys)[0] == len(keys)
        seconds = time.perf_counter() - began
        index.close()
    return {"blocks": blocks, "lookups_per_second": len(probes) * BLOCKS_OF_A_SESSION / seconds}


def table(bench: dict) -> str:
    """The figures as they stand in the page."""
    turn, index = bench["turn"], bench["index"]
    rows = (
        (f"first token after {turn['tokens']:,} tokens of history and {turn['new_tokens']} new ones: computed again",
         f"{turn['recompute_seconds']:.3g} s"),
        ("the same, history found on the drive", f"{turn['fork_seconds']:.3g} s ({turn['ratio']:.3g}x as fast)"),
        ("data and journal written for that turn", f"{turn['bytes_written'] / 2**20:.3g} MiB"),
        ("K and V of its new tokens", f"{turn['bytes_of_new_tokens'] / 2**20:.3g} MiB"),
        (f"blocks looked up, in an index of {index['blocks']:,}", f"{index['lookups_per_second']:,.0f} a second"),
    )  # fmt: skip
    lines = ["| measured | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)]
    where = bench["machine"]
    note = (
        f"Measured on {where['processor']}, {where['cpus']} shared cores, while other work ran: only the ratio means "
        "something. The shipped model, cpu target, its file not in the page cache."
    )
    return "\n".join([*lines, "", note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("out/bench_sessions.json"))
    parser.add_argument("--tokens", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    given = parser.parse_args()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    Path("out").mkdir(exist_ok=True)
    bench = {
        "machine": {"processor": processor(), "cpus": os.cpu_count()},
        "turn": turns(given.tokens, given.rounds),
        "index": lookups(given.blocks),
    }
    given.json.write_text(json.dumps(bench, indent=1) + "\n")
    write_blocks(PAGE, {"bench-sessions": table(bench)})
    print(table(bench))


if __name__ == "__main__":
    main()
