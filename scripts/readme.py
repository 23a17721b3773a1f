"""Write the measured tables of README.md, or of another page, from the JSON that the benchmarks leave in out/."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import llama_cpp
from page_blocks import write_blocks

ROOT = Path(__file__).resolve().parent.parent
# A bracket has one meaning in a table, which stands above it.
ATTENTION = "GB/s of K and V; in brackets: how many times as fast `fast` is, median of the rounds' ratios."
DECODE = (
    "ms per decode step of one sequence; in brackets: how many times the time of stock transformers, median of the "
    "rounds' ratios."
)
CPU_TARGET = "ms for the attention of a decode step; in brackets: how many times as fast as `exact`."


def attention(bench: dict) -> str:
    """One line per contender, one column per (g, threads): GB/s of K and V, and how many times faster `fast` is."""
    streaming = [row for row in bench["rows"] if row["contender"] != "hls"]
    columns = sorted({(row["shape"]["g"], row["threads"]) for row in streaming})
    cells: dict[str, dict[tuple[int, int], str]] = {}
    for row in streaming:
        ratio = row["slower_than_fast"]
        text = f"{row['gb_per_s']:.3g}" + ("" if row["contender"] == "fast" else f" ({ratio:.3g}x)")
        cells.setdefault(row["contender"], {})[row["shape"]["g"], row["threads"]] = text
    shape, machine = streaming[0]["shape"], bench["machine"]
    head = ["GB/s of K and V", *(f"g = {g}, {n} thread{'s' if n > 1 else ''}" for g, n in columns)]
    lines = [head, ["---"] + ["---:"] * len(columns)]
    lines += [[name, *(by.get(column, "-") for column in columns)] for name, by in cells.items()]
    slow = [row for row in bench["rows"] if row["contender"] == "hls"]
    compiled = ", ".join(f"{row['gb_per_s']:.2g} GB/s at g = {row['shape']['g']}" for row in slow)
    where = f"{machine['processor']}, {machine['cpus']} shared cores, {machine['isa']}, torch {bench['torch']}"
    note = (
        f"Measured on {where}; s = {shape['s']}, d = {shape['d']}, {shape['heads']} KV heads streamed from memory. "
        "`memory read` only reads as many bytes, `multiply-adds alone` only computes as many products and sums of "
        "binary64 numbers, in registers: no exact sum of this kind is faster. "
        f"The compiled kernels (`hls`, s = {slow[0]['shape']['s']}): {compiled}."
    )
    return _page(ATTENTION, lines, note)


def decode(bench: dict) -> str:
    """One line per model and context, one column per contender: ms per token and how many times that of stock."""
    rows, machine = bench["decode"], bench["machine"]
    names = list(dict.fromkeys(row["contender"] for row in rows))
    lines = [["model, context", *names], ["---"] + ["---:"] * len(names)]
    for model, context in dict.fromkeys((row["model"], row["context"]) for row in rows):
        found = {row["contender"]: row for row in rows if (row["model"], row["context"]) == (model, context)}
        cells = [_ms(row["median_seconds"]) if row else "-" for row in map(found.get, names)]
        ratios = [f" ({row['ratio']:.2g}x)" if row else "" for row in map(found.get, names)]
        lines.append([f"{model}, {context:,}", cells[0], *map("".join, zip(cells[1:], ratios[1:], strict=True))])
    overheads = ", ".join(f"{p['overhead']:+.1%} ({p['model']}, {p['tokens']:,} tokens)" for p in bench["prefill"])
    note = (
        f"Measured on {machine['processor']}, {machine['threads']} threads, "
        f"{machine['bytes_per_second'] / 1e9:.3g} GB/s of memory, torch {machine['torch']}; caches filled with random "
        f"K and V. Time to the first token with K and V on their way to the drive: {overheads}."
    )
    if llama_cpp.NAME in names:
        note += (
            f" {llama_cpp.NAME}: its own `llama-bench`, where that and the package `gguf` are installed; flash "
            f"attention, matrices in bfloat16 (mini's too), up to {llama_cpp.LONGEST:,} tokens."
        )
    return _page(DECODE, lines, note)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds > 0.1 else f"{seconds * 1e3:.3g}"


def _real(rows: list[dict]) -> str:
    _, exact, sparf = rows
    share = statistics.median(sparf["file_bytes"]) / statistics.median(exact["file_bytes"])
    return (
        f"{sparf['contender']} K and V of {sparf['tokens']:,} tokens of source code: {share:.0%} of the bytes, "
        f"{sparf['over_exact']:.2g}x."
    )


def cpu_target(bench: dict) -> str:
    """One line per context; one column per contender, and for each comparison with the disk."""
    machine, names = bench["machine"], list(dict.fromkeys(row["contender"] for row in bench["rows"]))
    beside = {"disk alone": ["GB/s"], "exact": ["share of the disk's rate"]}
    head = ["context", *(column for name in names for column in [name, *beside.get(name, [])])]
    lines = [head, ["---:"] * len(head)]
    for tokens in dict.fromkeys(row["tokens"] for row in bench["rows"]):
        found = {row["contender"]: row for row in bench["rows"] if row["tokens"] == tokens}
        cells = [f"{tokens:,}"]
        for name in names:
            row = found[name]
            ratio = f" ({row['over_exact']:.2g}x)" if name.startswith("SparF") else ""
            cells.append(_ms(row["median_seconds"]) + ratio)
            if name == "disk alone":
                cells.append(f"{row['kv_bytes'] / row['median_seconds'] / 1e9:.3g}")
            if name == "exact":
                cells.append(f"{row['of_disk']:.0%}")
        lines.append(cells)
    prefill = bench["prefill"]
    note = (
        "426m's 8 layers, K and V in a file on this machine's disk; measured on "
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}; but for `cached` the page "
        "cache does not hold the file. `disk alone`: as many bytes of the file in direct reads of 1 MiB. The tokens "
        "that SparF chooses are scattered (independent random rows), or lie in runs of similar rows. `cached` and "
        "`packed sdpa`: warm, in turns. "
        f"{_real(bench['real'])} "
        f"Time to the first token with K and V on their way to the file: {prefill['overhead']:+.1%} "
        f"({prefill['model']}, {prefill['tokens']:,} tokens)."
    )
    return _page(CPU_TARGET, lines, note)


def groups(bench: list[dict]) -> str:
    """How fast steps of policy groups on a model's K and V are beside exact ones, in one sentence."""
    rows = [row for row in bench if row["data"].startswith("smollm2")]
    eighth = {row["contender"]: f"{row['over_exact']:.1f}" for row in rows if row["contender"].startswith("groups 1/8")}
    cold = {name.split("unit ")[1]: ratio for name, ratio in eighth.items() if "hot" not in name}
    hot = [ratio for name, ratio in eighth.items() if "hot" in name]
    (unit, ratio), *larger = cold.items()
    others = ", ".join(f"{unit}: {ratio}" for unit, ratio in larger)
    return (
        f"From this machine's disk (`make bench-groups`, {rows[0]['tokens']:,} tokens of SmolLM2's K and V), an "
        f"attention step of `groups` at 1/8 is {ratio} times as fast as an exact one with units of {unit} tokens "
        f"({others}); with a fifth of K and V in memory (`--hot`) {hot[0]} times ({', '.join(hot[1:])})."
    )


def _page(legend: str, lines: list[list[str]], note: str) -> str:
    """What the cells say, the table, and where it was measured."""
    return "\n".join([legend, "", *("| " + " | ".join(line) + " |" for line in lines), "", note])


BLOCKS = (
    ("bench-attention", attention),
    ("bench-decode", decode),
    ("bench-cpu-target", cpu_target),
    ("bench-groups", groups),
)


def main() -> None:
    """Write the tables whose benchmarks were run, and name the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "README.md", help="with the same blocks")
    parser.add_argument("names", nargs="*", default=[name for name, _ in BLOCKS], help="blocks; default: all")
    asked = parser.parse_args()
    blocks, missing = {}, []
    for name, table in BLOCKS:
        if name not in asked.names:
            continue
        source = ROOT / f"out/{name.replace('-', '_')}.json"
        if source.exists():
            blocks[name] = table(json.loads(source.read_text()))
        else:
            missing.append(f"make {name}")
    write_blocks(asked.page, blocks)
    if missing:
        print(f"left as they are: {', '.join(missing)} was not run", file=sys.stderr)


if __name__ == "__main__":
    main()
