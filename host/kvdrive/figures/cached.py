"""AttentionStore's (CachedAttention's) figures: replays of generated conversations, and loading beside computing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from kvdrive.figures.figure import Chart, Figure, Paper, Published, Series, Style
from kvdrive.perf import calibration, hardware, reuse
from kvdrive.perf.shapes import LLAMA_13B, MISTRAL_7B
from kvdrive.sessions.replay import simulation, traces
from kvdrive.sessions.replay.hardware import GB, MODELS, Machine

CONVERSATIONS, RATE, SEED = 120, 1.0, 1  # of the replayed traces
THEIRS = 9000  # the paper's conversations
CROWD = 160  # conversations where sizes are scaled by their number
NAMES = {"llama-13b": "LLaMA-13B", "llama-65b": "LLaMA-65B", "llama-70b": "LLaMA-70B", "falcon-40b": "Falcon-40B"}
# The paper's results by model: hit rate, TTFT saved, prefill throughput, GPU time, cost saved.
STATED: dict[str, tuple[str, tuple[float, float, float, float, float]]] = {
    "llama-13b": ("AS-08", (86, 85, 6.8, 4.0, 70)),
    "llama-65b": ("AS-09", (71, 61, 2.6, 1.9, 43)),
    "llama-70b": ("AS-10", (89, 87, 7.8, 3.3, 66)),
    "falcon-40b": ("AS-11", (90, 86, 7.2, 3.4, 68)),
}
ONE_GPU = reuse.Machine(1, calibration.A100_USE.value)
DOCUMENT, QUESTION = 28 * 1024, 256
_PAPER_ORDER = ("queue-aware", "lru", "fifo")


@cache
def replayed(
    model: str, policy: str, memory: float = 128, disk: float = 10_000, rate: float = RATE, count: int = CONVERSATIONS
) -> dict[str, float]:
    """The counts of a replay of `count` conversations; `policy` "recompute": nothing is kept. Sizes in GB."""
    trace = traces.conversations(count, rate, SEED)
    machine = Machine(int(memory * GB), int(disk * GB))
    keep = policy != "recompute"
    found = simulation.replay(trace, MODELS[model], machine, policy if keep else "lru", keep=keep).figures(machine)
    found["gpu_seconds"] = found["gpu_prefill_seconds"] + found["gpu_decode_seconds"] / machine.slots
    return found


def results(model: str) -> tuple[float, float, float, float, float]:
    """Hit rate, TTFT saved (%), prefill throughput, GPU time (times), cost saved (%) against computing everything."""
    kept, computed = replayed(model, "queue-aware"), replayed(model, "recompute")
    gain = computed["gpu_seconds"] / kept["gpu_seconds"]
    gpus = 2 if model == "llama-13b" else 4
    return (
        100 * kept["hit_rate"],
        100 * (1 - kept["mean_ttft_seconds"] / computed["mean_ttft_seconds"]),
        kept["prefill_tokens_per_second"] / computed["prefill_tokens_per_second"],
        gain,
        100 * reuse.saving(gain, gpus),
    )


def _by_model(number: int, at: int, title: str, unit: str, letter: str, says: str) -> Figure:
    series = [Series("ours", [results(model)[at] for model in NAMES])]
    published = [
        Published(values[at], f"{claim}{letter}", says, NAMES[model], "ours")
        for model, (claim, values) in STATED.items()
    ]
    chart = Chart(title, "model", unit, list(NAMES.values()), series, published, Style.bars)
    pairs = ", ".join(f"{name} {results(model)[at]:.3g} ({STATED[model][1][at]})" for model, name in NAMES.items())
    return Figure(
        f"cachedattention-{number}",
        str(number),
        title,
        [chart],
        f"Ours, and the paper's in brackets: {pairs}. {_REPLAYED}",
    )


_UNSTATED = "The paper's values are not in the text. "
_REPLAYED = (
    f"A replay of {CONVERSATIONS} generated conversations; the times between turns and the batch are not "
    "published, and "
    "decide much of it. `kvdrive replay` runs the same with other settings."
)


def _ahead(history: int, new: int, buffered: int | None) -> float:
    return reuse.preloaded(LLAMA_13B, ONE_GPU, 16, history, new, buffered)


def saved_by_loading_ahead() -> tuple[float, float]:
    """Percent of the time saved by layers that load while others compute: none loaded ahead, and 15."""
    without = _ahead(1024, 100, None)
    return 100 * (1 - _ahead(1024, 100, 0) / without), 100 * (1 - _ahead(1024, 100, 15) / without)


def saved_by_saving_behind(prompt: int, batch: int = 16, steps: int = 20) -> float:
    """Percent of the time saved when K and V leave the GPU while it computes: prefill and `steps` decode steps."""
    computing = reuse.recomputed(LLAMA_13B, ONE_GPU, batch, 0, prompt)
    reads = LLAMA_13B.weight_bytes + LLAMA_13B.kv_bytes(batch, prompt)
    computing += steps * reads / hardware.A100_80.memory_rate.value
    saving = LLAMA_13B.kv_bytes(batch, prompt + steps) / ONE_GPU.link
    return 100 * saving / (saving + computing)


def _figure_18() -> Figure:
    shares = (500, 600, 700, 800, 900)
    load = {h: _ahead(h, 1000 - h, 0) for h in shares}
    computed = reuse.recomputed(LLAMA_13B, ONE_GPU, 16, 0, 1000)
    chart = Chart(
        "LLaMA-13B, one A100, batch 16, 1,000 tokens",
        "tokens of history",
        "s until the first token",
        [str(share) for share in shares],
        [Series("computed", [computed for _ in shares]), Series("loaded layer by layer", list(load.values()))],
        style=Style.bars,
    )
    return Figure(
        "cachedattention-18",
        "18",
        "Loading history beats computing it",
        [chart],
        "Loading is faster in every setting, as the paper says (AS-17). The share of the GPU's FLOP is an input "
        "(AS-05).",
    )


def _figure_19() -> Figure:
    ways = {"nothing ahead": None, "layer by layer": 0, "5 layers ahead": 5, "10 ahead": 10, "15 ahead": 15}
    times = [_ahead(1024, 100, ahead) for ahead in ways.values()]
    chart = Chart(
        "LLaMA-13B, one A100, batch 16, 1K + 100 tokens",
        "",
        "time, nothing ahead = 1",
        list(ways),
        [Series("ours", [time / times[0] for time in times])],
        [
            Published(0.65, "AS-16", "35 % less", "layer by layer", "ours"),
            Published(0.39, "AS-16", "61 % less", "15 ahead", "ours"),
        ],
        Style.bars,
    )
    none, ahead = saved_by_loading_ahead()
    return Figure(
        "cachedattention-19",
        "19",
        "Layers that load while others compute",
        [chart],
        f"Ours saves {none:.0f} % without a buffer and {ahead:.0f} % with 15 layers (paper: 35 and 61 %). The "
        "share of the "
        "GPU's FLOP is an input from another model (AS-05).",
    )


def _figure_20() -> Figure:
    prompts = (1024, 1200, 1400, 1600)
    chart = Chart(
        "LLaMA-13B, one A100, batch 16, 20 tokens out",
        "tokens of the prompt",
        "time saved, %",
        [str(prompt) for prompt in prompts],
        [Series("ours", [saved_by_saving_behind(prompt) for prompt in prompts])],
        [Published(13, "AS-18", "least"), Published(15, "AS-18", "most")],
        Style.bars,
    )
    return Figure(
        "cachedattention-20",
        "20",
        "Saving while computing",
        [chart],
        f"Saving behind the computation saves {saved_by_saving_behind(1024):.0f} % of the time (paper: 13 to 15 %), if "
        "nothing of it overlaps otherwise. The batch is not published; it hardly matters, since all times grow "
        "with it.",
    )


def _crowded(policy: str, memory: float, disk: float) -> float:
    """Hit rate in percent of CROWD conversations with tiers that are as much smaller as the trace is."""
    scale = CROWD / THEIRS
    return 100 * replayed("llama-13b", policy, memory * scale, disk * scale, count=CROWD)["hit_rate"]


def _figure_21() -> Figure:
    settings = {"128 GB / 2 TB": (128, 2000), "128 GB / 10 TB": (128, 10_000)}
    rows = {policy: [_crowded(policy, *sizes) for sizes in settings.values()] for policy in _PAPER_ORDER}
    stated = {"queue-aware": (None, 86), "lru": (12.9, 58), "fifo": (9.5, 48)}
    published = [
        Published(value, "AS-13" if place.endswith("10 TB") else "AS-12", policy, place, policy)
        for policy, values in stated.items()
        for place, value in zip(settings, values, strict=True)
        if value is not None
    ]
    chart = Chart(
        "LLaMA-13B, scaled",
        "memory / SSD for 9,000 conversations",
        "hit rate, %",
        list(settings),
        [Series(policy, values) for policy, values in rows.items()],
        published,
        Style.bars,
    )
    return Figure(
        "cachedattention-21",
        "21",
        "Eviction policies",
        [chart],
        f"{CROWD} conversations, and {CROWD} / 9,000 of the paper's memory and SSD, which hold the same share "
        "of a trace. The "
        "policy that looks ahead in the queue has more hits than LRU and FIFO, as in the paper. All have far "
        "fewer, since "
        "a short trace has all its conversations open at once. " + _REPLAYED,
    )


def _figure_23() -> Figure:
    settings = {"memory": (128, 0), "memory + SSD": (128, 10_000)}
    rates = [_crowded("queue-aware", *sizes) for sizes in settings.values()]
    chart = Chart(
        "LLaMA-13B, scaled as in figure 21",
        "",
        "hit rate, %",
        list(settings),
        [Series("ours", rates)],
        style=Style.bars,
    )
    return Figure(
        "cachedattention-23",
        "23",
        "What the SSD adds",
        [chart],
        _UNSTATED + _REPLAYED,
        "Which settings the figure has is our reading of the text.",
    )


def _figure_24() -> Figure:
    rates = (0.5, 1.0, 2.0)
    chart = Chart(
        "LLaMA-13B, 128 GB of memory, 10 TB of SSD",
        "new conversations a second",
        "hit rate, %",
        [f"{rate:g}" for rate in rates],
        [Series("ours", [100 * replayed("llama-13b", "queue-aware", rate=rate)["hit_rate"] for rate in rates])],
        style=Style.bars,
    )
    return Figure(
        "cachedattention-24",
        "24",
        "Rate of arrivals",
        [chart],
        _UNSTATED + _REPLAYED,
        "Which settings the figure has is our reading of the text.",
    )


def _figure_25() -> Figure:
    lengths = tuple(1024 * n for n in (4, 8, 16, 28))
    computed = [reuse.recomputed(MISTRAL_7B, ONE_GPU, 1, tokens, QUESTION) for tokens in lengths]
    loaded = [reuse.preloaded(MISTRAL_7B, ONE_GPU, 1, tokens, QUESTION, 0) for tokens in lengths]
    first = Chart(
        "time to the first token",
        "tokens of the document",
        "s",
        lengths,
        [Series("computed", computed), Series("loaded layer by layer", loaded)],
        [
            Published(2.5, "AS-22", "computed", DOCUMENT),
            Published(0.12, "AS-22", "loaded", DOCUMENT),
        ],
        log="y",
    )
    gain = Chart(
        "prefill throughput",
        "tokens of the document",
        "computed = 1",
        lengths,
        [Series("loaded layer by layer", [c / t for c, t in zip(computed, loaded, strict=True)])],
        [Published(22, "AS-23", "28K tokens", DOCUMENT)],
    )
    return Figure(
        "cachedattention-25",
        "25",
        "Documents of Mistral-7B, one A100",
        [first, gain],
        f"With 28K tokens ours takes {computed[-1]:.2f} s computed and {loaded[-1]:.3f} s loaded (paper: 2.5 "
        "and 0.12 s), "
        f"{computed[-1] / loaded[-1]:.1f} times the throughput (paper: 22). The small model uses more of the "
        "GPU's FLOP than "
        "LLaMA-65B, from which the share is taken.",
    )


def _figure_26() -> Figure:
    chart = Chart(
        "Mistral-7B, 28K tokens",
        "",
        "output throughput, computed = 1",
        ["computed", "loaded"],
        [Series("from the paper's shares", [1.0, (1 - 0.012) / (1 - 0.41)])],
        [Published(1.67, "AS-25", "67 % more", "loaded", "from the paper's shares")],
        Style.bars,
    )
    return Figure(
        "cachedattention-26",
        "26",
        "Output throughput with documents",
        [chart],
        "Follows from the shares of the prefill in the GPU's time (41 and 1.2 %). The shares themselves need "
        "the batch of "
        "the decode steps, which is not published.",
    )


def paper() -> Paper:
    """All figures."""
    by_model: tuple[Callable[[], Figure], ...] = (
        lambda: _by_model(13, 0, "Hits among turns with history", "%", "a", "hit rate"),
        lambda: _by_model(14, 1, "Time to the first token saved", "%", "b", "saved"),
        lambda: _by_model(15, 2, "Prefill throughput", "times that of computing", "c", "throughput"),
        lambda: _by_model(16, 3, "GPU time", "times less than computing", "d", "GPU time"),
        lambda: _by_model(17, 4, "Cost saved", "%", "e", "saved"),
    )
    rest = (_figure_18, _figure_19, _figure_20, _figure_21, _figure_23, _figure_24, _figure_25, _figure_26)
    return Paper(
        "cachedattention",
        "AttentionStore",
        [figure() for figure in (*by_model, *rest)],
        [("22", "replay has no conversations whose history is cut because it exceeds the model's context")],
    )
