"""AttentionStore's (CachedAttention's) figures: replays of generated conversations, and loading beside computing."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.perf import hardware
from kvdrive.perf.shapes import LLAMA_13B, MISTRAL_7B
from kvdrive.study.attention_store import evaluation, inputs, reuse, simulation
from kvdrive.study.attention_store.evaluation import Setting
from kvdrive.study.attention_store.hardware import GB, MODELS
from kvdrive.study.figure import Chart, Figure, Paper, Published, Series, Style
from kvdrive.study.stated import remembered

NAMES = {"llama-13b": "LLaMA-13B", "llama-65b": "LLaMA-65B", "llama-70b": "LLaMA-70B", "falcon-40b": "Falcon-40B"}
# The paper's results by model: hit rate, TTFT saved, prefill throughput, GPU time, cost saved.
STATED: dict[str, tuple[str, tuple[float, float, float, float, float]]] = {
    "llama-13b": ("AS-08", (86, 85, 6.8, 4.0, 70)),
    "llama-65b": ("AS-09", (71, 61, 2.6, 1.9, 43)),
    "llama-70b": ("AS-10", (89, 87, 7.8, 3.3, 66)),
    "falcon-40b": ("AS-11", (90, 86, 7.2, 3.4, 68)),
}
DOCUMENT, QUESTION = 28 * 1024, 256
_POLICIES = ("queue-aware", "lru", "fifo")
_SMALL = 30  # conversations, memory and disk are that much less than the paper's


def one_gpu() -> reuse.Machine:
    """An A100, with the share of its FLOP that is an input."""
    return reuse.Machine(1, inputs.A100_USE.value)


def results(model: str) -> tuple[float, float, float, float, float]:
    """Hit rate, TTFT saved (%), prefill throughput, GPU time (times), cost saved (%) against computing everything."""
    prefill, gain = evaluation.prefill_speedup(model), evaluation.gpu_speedup(model)
    saving = reuse.saving(gain, MODELS[model].gpus)
    return evaluation.hit_rate(Setting(model)), 100 * (1 - 1 / prefill), prefill, gain, 100 * saving


@remembered
def small(model: str = "llama-13b", memory: float = 128, disk: float = 10_000) -> simulation.Result:
    """A replay where everything is _SMALL times less. Sizes in GB."""
    return evaluation.run(Setting(model, disk, memory=memory), _SMALL)


def _small_rate(found: simulation.Result) -> float:
    return 100 * found.hits / found.requests


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


_REPLAYED = (
    "A twelfth of the 9,000 conversations is replayed, with a twelfth of the space. Turns arrive at random times and "
    "sessions take the room of a whole context, which follows from the hit rates of LRU and FIFO with 10 TB (AS-13); "
    "decode steps last as long as transformers takes to start their kernels here. The paper states none of them."
)
_SCALED = (
    f"Replays with {_SMALL} times fewer conversations, and as much less of memory and SSD. Which "
    "settings the figure has is our reading of the text, which has no value among our claims."
)


def _ahead(history: int, new: int, buffered: int | None) -> float:
    return reuse.preloaded(LLAMA_13B, one_gpu(), 16, history, new, buffered)


def saved_by_loading_ahead() -> tuple[float, float]:
    """Percent of the time saved by layers that load while others compute: none loaded ahead, and 15."""
    without = _ahead(1024, 100, None)
    return 100 * (1 - _ahead(1024, 100, 0) / without), 100 * (1 - _ahead(1024, 100, 15) / without)


def saved_by_saving_behind(prompt: int, batch: int = 16, steps: int = 20) -> float:
    """Percent of the time saved when K and V leave the GPU while it computes: prefill and `steps` decode steps."""
    computing = reuse.recomputed(LLAMA_13B, one_gpu(), batch, 0, prompt)
    reads = LLAMA_13B.weight_bytes + LLAMA_13B.kv_bytes(batch, prompt)
    computing += steps * reads / hardware.A100_80.memory_rate.value
    saving = LLAMA_13B.kv_bytes(batch, prompt + steps) / one_gpu().link
    return 100 * saving / (saving + computing)


def _figure_18() -> Figure:
    shares = (500, 600, 700, 800, 900)
    load = {h: _ahead(h, 1000 - h, 0) for h in shares}
    computed = reuse.recomputed(LLAMA_13B, one_gpu(), 16, 0, 1000)
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


def _figure_21() -> Figure:
    sizes = {"128 GB / 2 TB": 2000, "128 GB / 10 TB": 10_000}
    settings = {p: [Setting("llama-13b", disk, p) for disk in sizes.values()] for p in _POLICIES}
    rows = {policy: [evaluation.hit_rate(one) for one in of] for policy, of in settings.items()}
    printed = {"queue-aware": (None, 86), "lru": (12.9, 58), "fifo": (9.5, 48)}
    published = [
        Published(value, "AS-13" if place.endswith("10 TB") else "AS-12", policy, place, policy)
        for policy, values in printed.items()
        for place, value in zip(sizes, values, strict=True)
        if value is not None
    ]
    hits = Chart(
        "a: LLaMA-13B",
        "memory / SSD",
        "hit rate, %",
        list(sizes),
        [Series(policy, values) for policy, values in rows.items()],
        published,
        Style.bars,
    )
    hours = Chart(
        "b: LLaMA-13B",
        "memory / SSD",
        "GPU time, hours",
        list(sizes),
        [Series(policy, [evaluation.gpu_hours(one) for one in of]) for policy, of in settings.items()],
        style=Style.bars,
    )
    found = ", ".join(f"{policy} {values[0]:.0f} and {values[1]:.0f}" for policy, values in rows.items())
    in_memory = 100 * evaluation.memory_share(settings["queue-aware"][1]) / rows["queue-aware"][1]
    return Figure(
        "cachedattention-21",
        "21",
        "Eviction policies",
        [hits, hours],
        f"Hits in per cent with 2 and with 10 TB: {found}; in the paper LRU 12.9 and 58, FIFO 9.5 and 48, its own 86 "
        f"with 10 TB. {in_memory:.1f} % of the hits of the policy that looks ahead are in memory. {_REPLAYED}",
    )


def _figure_22() -> Figure:
    settings = [[Setting(model, decoupled=decoupled) for model in NAMES] for decoupled in (True, False)]
    with_cuts, again = ([evaluation.hit_rate(one) for one in of] for of in settings)
    drops = {"llama-13b": 17.6, "llama-65b": 41.5, "llama-70b": 18.1, "falcon-40b": 18.4}
    published = [
        Published(STATED[model][1][0] - drop, f"{STATED[model][0]}g", "without", NAMES[model], "computed again")
        for model, drop in drops.items()
    ]
    names = ("positions are applied later", "computed again")
    hits = Chart(
        "a: contexts that exceed the window",
        "model",
        "hit rate, %",
        list(NAMES.values()),
        [Series(name, values) for name, values in zip(names, (with_cuts, again), strict=True)],
        published,
        Style.bars,
    )
    hours = Chart(
        "b: contexts that exceed the window",
        "model",
        "GPU time, hours",
        list(NAMES.values()),
        [Series(name, [evaluation.gpu_hours(one) for one in of]) for name, of in zip(names, settings, strict=True)],
        style=Style.bars,
    )
    lost = ", ".join(
        f"{name} {a - b:.1f} ({drops[model]:g})"
        for (model, name), a, b in zip(NAMES.items(), with_cuts, again, strict=True)
    )
    return Figure(
        "cachedattention-22",
        "22",
        "Hits lost where a cut context is computed again",
        [hits, hours],
        f"Points lost, and the paper's in brackets: {lost}. {_REPLAYED}",
    )


_RATIOS = (0.05, 0.1, 0.15, 0.25, 0.5)


def _figure_23() -> Figure:
    model = MODELS["llama-13b"]
    whole = 3600 * model.window * model.bytes_per_token / GB  # of the sessions of an hour, each a whole context long
    found = [small(memory=min(128, r * whole), disk=max(0, r * whole - 128)) for r in _RATIOS]
    hits = Chart(
        "a: LLaMA-13B",
        "capacity / that of all sessions of an hour",
        "hit rate, %",
        [f"{ratio:g}" for ratio in _RATIOS],
        [Series("ours", [_small_rate(one) for one in found])],
        style=Style.bars,
    )
    speed = Chart(
        "b: LLaMA-13B",
        "capacity / that of all sessions of an hour",
        "prefill, K tokens/s",
        [f"{ratio:g}" for ratio in _RATIOS],
        [Series("ours", [one.prompt_tokens / one.prefill / 1e3 for one in found])],
        style=Style.bars,
    )
    return Figure(
        "cachedattention-23",
        "23",
        "What capacity is needed",
        [hits, speed],
        f"All sessions of an hour would fill {whole / 1e3:.1f} TB with whole contexts. A tenth of it gives "
        f"{_small_rate(found[1]):.0f} % of hits, half of it {_small_rate(found[-1]):.0f} %. {_SCALED}",
    )


def _figure_24() -> Figure:
    tiers = {"10 GB of HBM": (10, 0), "+ 128 GB of DRAM": (128, 0), "+ 10 TB of SSD": (128, 10_000)}
    found = {name: [small(model, *sizes) for model in NAMES] for name, sizes in tiers.items()}
    hits = Chart(
        "a: tiers",
        "model",
        "hit rate, %",
        list(NAMES.values()),
        [Series(name, [_small_rate(one) for one in of]) for name, of in found.items()],
        style=Style.bars,
    )
    hours = Chart(
        "b: tiers",
        "model",
        "GPU time, hours",
        list(NAMES.values()),
        [Series(name, [_SMALL * (one.prefill + one.decode) / 3600 for one in of]) for name, of in found.items()],
        style=Style.bars,
    )
    memory = [_small_rate(one) for one in found["+ 128 GB of DRAM"]]
    return Figure(
        "cachedattention-24",
        "24",
        "Where K and V are kept",
        [hits, hours],
        f"Memory alone finds {min(memory):.0f} to {max(memory):.0f} %, HBM alone next to nothing. {_SCALED}",
    )


def _figure_25() -> Figure:
    lengths = tuple(1024 * n for n in (4, 8, 16, 28))
    computed = [reuse.recomputed(MISTRAL_7B, one_gpu(), 1, tokens, QUESTION) for tokens in lengths]
    loaded = [reuse.preloaded(MISTRAL_7B, one_gpu(), 1, tokens, QUESTION, 0) for tokens in lengths]
    first = Chart(
        "time to the first token",
        "tokens of the document",
        "time to the first token, s",
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


_ANSWER = 64  # tokens out of a document's task


def document_step() -> float:
    """Seconds of a decode step behind the document: its bytes, or what transformers takes to start its kernels."""
    reads = MISTRAL_7B.weight_bytes + MISTRAL_7B.kv_bytes(1, DOCUMENT + QUESTION)
    return max(reads / hardware.A100_80.memory_rate.value, MISTRAL_7B.layers * hardware.TRANSFORMERS_LAYER.value)


def document_gpu() -> dict[str, tuple[float, float]]:
    """Seconds of the GPU for prefill and answer, with the document computed and loaded."""
    decode = _ANSWER * document_step()
    computed = reuse.recomputed(MISTRAL_7B, one_gpu(), 1, DOCUMENT, QUESTION)
    loaded = MISTRAL_7B.prefill_flop(QUESTION, DOCUMENT) / one_gpu().rate  # loading leaves the GPU to others
    return {"computed": (computed, decode), "loaded": (loaded, decode)}


def _figure_26() -> Figure:
    found = document_gpu()
    shares = [100 * prefill / (prefill + decode) for prefill, decode in found.values()]
    names = list(found)
    a, b = (sum(of) for of in found.values())
    parts = Chart(
        "a: Mistral-7B, 28K tokens in, 64 out",
        "",
        "share of GPU time, %",
        names,
        [Series("prefill", shares), Series("decode", [100 - share for share in shares])],
        [Published(41, "AS-24", "prefill, computed", "computed"), Published(1.2, "AS-24", "prefill, loaded", "loaded")],
        Style.stack,
    )
    gain = Chart(
        "b: output throughput",
        "",
        "computed = 1",
        names,
        [Series("ours", [1.0, a / b])],
        [Published(1.67, "AS-25", "67 % more", "loaded", "ours")],
        Style.bars,
    )
    return Figure(
        "cachedattention-26",
        "26",
        "GPU time and output throughput with documents",
        [parts, gain],
        f"The prefill takes {shares[0]:.0f} % of the GPU's time computed and {shares[1]:.1f} % loaded (paper: 41 and "
        f"1.2 %), which makes {a / b:.2f} times the output (paper: 1.67). A decode step of one sequence lasts "
        f"{1e3 * document_step():.0f} ms here; the paper states neither that nor its batch.",
    )


FIGURES: dict[str, Callable[[], Figure]] = {
    "13": lambda: _by_model(13, 0, "Hits among all turns", "hit rate, %", "a", "hit rate"),
    "14": lambda: _by_model(14, 1, "Time to the first token saved", "time saved, %", "b", "saved"),
    "15": lambda: _by_model(15, 2, "Prefill throughput", "times that of computing", "c", "throughput"),
    "16": lambda: _by_model(16, 3, "GPU time", "GPU time of computing everything, ours = 1", "d", "GPU time"),
    "17": lambda: _by_model(17, 4, "Cost saved", "cost saved, %", "e", "saved"),
    "18": _figure_18,
    "19": _figure_19,
    "20": _figure_20,
    "21": _figure_21,
    "22": _figure_22,
    "23": _figure_23,
    "24": _figure_24,
    "25": _figure_25,
    "26": _figure_26,
}


def paper() -> Paper:
    """All figures."""
    return Paper("cachedattention", "AttentionStore", [figure() for figure in FIGURES.values()])
