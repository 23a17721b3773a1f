"""HILOS' figures: batch 16, weights in host memory up to 100 billion parameters, A100 40 GB, up to 16 SmartSSDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvdrive.perf import hardware, xcache
from kvdrive.perf.kernel import GROUPS, kernel_rate
from kvdrive.perf.shapes import GLAM_143B, MIXTRAL_8X7B, OPT_66B, OPT_175B, QWEN2_5_32B, ModelShape
from kvdrive.study.figure import Chart, Figure, Origin, Paper, Published, Series, Style
from kvdrive.study.hilos import inputs, machine
from kvdrive.study.hilos.inputs import LONG, OPTS
from kvdrive.study.hilos.machine import BATCH, CLUSTER, CLUSTER_GPUS, DRIVES, HILOS, SHARES, WITH_H100
from kvdrive.study.model import costs, decode
from kvdrive.study.model.decode import Attending, Machine, Step, Work
from kvdrive.study.series import over, shares
from kvdrive.study.stated import remembered

CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072)
OTHERS = (QWEN2_5_32B, MIXTRAL_8X7B, GLAM_143B)
INTERVALS = (1, 4, 8, 16, 32, 64)  # tokens between two writes
ANSWER = 64  # tokens out where nothing else is said
KERNEL_HZ = 296.05e6
_PARTS = ("weights", "K and V", "CPU attention", "attention", "X: drives", "X: uplink", "X: link", "X: GPU", "GPU")


@remembered
def ours(model: ModelShape, tokens: int, drives: int, batch: int = BATCH, alpha: float | None = None) -> Step:
    """A step with attention in the drives. `alpha` None: the best share of X-cache."""
    work = Work(model, batch, tokens)
    return machine.fastest(work, drives) if alpha is None else decode.attended(HILOS, work, Attending(drives, alpha))


@remembered
def near(model: ModelShape, tokens: int, drives: int = DRIVES) -> Step:
    """Attention near storage and nothing else: no X-cache, and each token is written at once."""
    return decode.attended(HILOS, Work(model, BATCH, tokens), Attending(drives, interval=0))


@remembered
def flex_ssd(model: ModelShape, tokens: int, batch: int = BATCH) -> Step:
    """FlexGen with 4 SSDs."""
    return machine.flexgen(Work(model, batch, tokens), inputs.FLEXGEN_COPY.value)


@remembered
def flex_16(model: ModelShape, tokens: int, batch: int = BATCH) -> Step:
    """FlexGen with 16 SSDs of 3 GB/s behind one chassis' lanes."""
    rate = min(16 * hardware.SMARTSSD_P2P.value, HILOS.uplink.value)
    return machine.flexgen(Work(model, batch, tokens), inputs.FLEXGEN_COPY.value, rate)


@remembered
def flex_dram(model: ModelShape, tokens: int, batch: int = BATCH) -> Step | None:
    """FlexGen from host memory, with as many sequences as fit; None if none does."""
    return machine.flexgen_dram(Work(model, batch, tokens))


def flex_h100(model: ModelShape, tokens: int) -> Step:
    """FlexGen with 4 SSDs and a faster GPU."""
    return machine.flexgen(Work(model, BATCH, tokens), inputs.FLEXGEN_COPY.value, machine=WITH_H100)


def prefill(model: ModelShape, tokens: int, writes: float, batch: int = BATCH) -> float:
    """Seconds to compute the prompts while their K and V are written at `writes` bytes per second."""
    flop = batch * model.prefill_flop(tokens) / (HILOS.gpu.flops.value * HILOS.use.value)
    return max(flop, model.kv_bytes(batch, tokens) / writes)


def best_share(model: ModelShape, tokens: int) -> float:
    """The share of X-cache with the shortest step, 16 drives."""
    return min(SHARES, key=lambda share: ours(model, tokens, 16, alpha=share).seconds)


@remembered
def best_interval(work: Work) -> int:
    """The tokens between two writes with the shortest step, 16 drives without X-cache."""
    return min(INTERVALS, key=lambda tokens: decode.attended(HILOS, work, Attending(16, 0.0, tokens)).seconds)


def clustered(model: ModelShape, tokens: int) -> float | None:
    """Tokens per second of vLLM on eight RTX A6000 with their prefill; None if no sequence fits."""
    batch = min(BATCH, decode.gpu_batch(CLUSTER, model, tokens, CLUSTER_GPUS))
    if not batch:
        return None
    flop = batch * model.prefill_flop(tokens) / (CLUSTER_GPUS * CLUSTER.gpu.flops.value * CLUSTER.use.value)
    return batch * ANSWER / (flop + ANSWER * decode.in_gpus(CLUSTER, Work(model, batch, tokens), CLUSTER_GPUS).seconds)


def answered(step: Step, writes: float, answer: int = ANSWER) -> float:
    """Tokens per second of a system with its prefill."""
    work = step.work
    return work.batch * answer / (prefill(work.model, work.tokens, writes, work.batch) + answer * step.seconds)


def _writes(drives: int) -> float:
    """Bytes per second that drives store; 0: the machine's SSDs."""
    return drives * HILOS.drive.write.value if drives else HILOS.ssds * HILOS.ssd.write.value


def _names(contexts: Sequence[int]) -> list[str]:
    return [f"{tokens // 1024}K" for tokens in contexts]


def _figure_2() -> Figure:
    model = OPT_175B
    footprint = Chart(
        "a: OPT-175B, batch 16",
        "tokens",
        "GB",
        _names(CONTEXTS),
        [
            Series("weights", [model.weight_bytes / 1e9 for _ in CONTEXTS]),
            Series("K and V", [model.kv_bytes(BATCH, tokens) / 1e9 for tokens in CONTEXTS]),
        ],
        style=Style.stack,
        origin=Origin.arithmetic,
    )
    steps = [flex_ssd(model, tokens) for tokens in CONTEXTS]
    chart = Chart(
        "b: FlexGen with 4 SSDs",
        "tokens",
        "share of a decode step, %",
        _names(CONTEXTS),
        shares(("weights", "K and V", "CPU attention", "GPU"), steps),
        [Published(60, "HIL-01", "K and V transfers take more than this")],
        Style.stack,
    )
    return Figure(
        "hilos-2",
        "2",
        "FlexGen's memory, and its step: reading K and V",
        [footprint, chart],
        f"Transfers of K and V take {100 * steps[-1].share('K and V'):.0f} % of our step with 128K tokens, and the "
        "CPU's attention the rest; the paper says more than 60 %. The rate at which FlexGen copies is fitted to "
        "another claim (HIL-24), that of its attention follows from its published code and the memory's rate.",
    )


def _figure_4() -> Figure:
    ratio = Chart(
        "equation 3: bytes over the interconnect",
        "tokens",
        "base over near storage",
        CONTEXTS,
        [Series("ours", [xcache.interface_ratio(tokens) for tokens in CONTEXTS])],
        [Published(65536.5, "HIL-02", "equation 3 at 128K", 131072)],
        log="xy",
        origin=Origin.arithmetic,
    )
    steps = [flex_ssd(OPT_66B, 32768), near(OPT_66B, 32768)]
    parts = Chart(
        "b: a step, OPT-66B, 32K tokens, batch 16",
        "",
        "s",
        ["FlexGen, 4 SSDs", f"near storage, {DRIVES} drives"],
        _seconds_of(steps),
        style=Style.stack,
    )
    busy = [near(OPT_66B, tokens) for tokens in CONTEXTS]
    use = Chart(
        f"c: use of the host, OPT-66B, {DRIVES} drives",
        "tokens",
        "busy, % of a step",
        _names(CONTEXTS),
        [
            Series(name, [100 * step.busy.get(key, 0.0) / step.seconds for step in busy])
            for name, key in (("GPU", "gpu"), ("link to the GPU (weights)", "link"))
        ],
        [Published(20, "HIL-03", "less than this")],
        Style.bars,
    )
    return Figure(
        "hilos-4",
        "4",
        "Attention near storage empties the interconnect and the host",
        [ratio, parts, use],
        "The ratio of bytes is equation 3 itself. The paper says that the host is used for less than 20 % of a "
        "step, which holds here with every context: the CPU has nothing to do, and the GPU reads the weights once. The "
        "link to it carries the same weights whatever the context.",
        "What panel b shows in the paper is our reading of the text.",
    )


def _seconds_of(steps: Sequence[Step]) -> list[Series]:
    """Seconds of each step by part; parts that can be seen."""
    seen = [part for part in _PARTS if any(step.share(part) > 0.002 for step in steps)]
    return [Series(part, [step.parts.get(part, 0.0) for step in steps]) for part in seen]


def _figure_10() -> Figure:
    charts = []
    for model in OPTS:
        base = {tokens: flex_ssd(model, tokens) for tokens in LONG}
        systems: dict[str, Sequence[Step | None]] = {
            "FlexGen, 4 SSDs": list(base.values()),
            "FlexGen, 16 PCIe 3.0 SSDs": [flex_16(model, tokens) for tokens in base],
            "FlexGen, host memory": [flex_dram(model, tokens) for tokens in base],
        }
        systems |= {f"{n} SmartSSDs": [ours(model, tokens, n) for tokens in base] for n in (4, 8, 16)}
        series = [
            Series(name, [over(step, flex) for step, flex in zip(steps, base.values(), strict=True)])
            for name, steps in systems.items()
        ]
        best = [Published(7.86, "HIL-15", "best over others")]
        charts.append(Chart(model.name, "tokens", "throughput, 4 SSDs = 1", _names(LONG), series, best, Style.bars))
    top = max(ours(m, t, 16).throughput / flex_ssd(m, t).throughput for m in OPTS for t in LONG)
    four = [ours(m, t, 4).throughput / d.throughput for m in OPTS for t in LONG if (d := flex_dram(m, t))]
    shared = [flex_16(m, t).throughput / flex_ssd(m, t).throughput for m in OPTS for t in LONG]
    return Figure(
        "hilos-10",
        "10",
        "Throughput of the OPT models",
        charts,
        f"16 drives are {top:.2f} times as fast as FlexGen with 4 SSDs at best (paper: 7.86). 4 drives reach "
        f"{min(four):.2f} to {max(four):.2f} of FlexGen from host memory (paper: 1.10 to 1.36). "
        f"16 SSDs without engines are {min(shared):.2f} to {max(shared):.2f} times as fast as 4 faster ones "
        "(paper: 0.64 to 0.94), since they share the chassis' lanes.",
        "DeepSpeed with pages that the GPU faults in is left out: what a fault costs is not published.",
    )


def _figure_11() -> Figure:
    batches, tokens = (1, 2, 4, 8, 16), 65536
    rows: dict[str, list[float | None]] = {
        "FlexGen, 4 SSDs": [flex_ssd(OPT_66B, tokens, batch).throughput for batch in batches],
        "FlexGen, host memory": [
            step.throughput if (step := flex_dram(OPT_66B, tokens, batch)) and step.work.batch == batch else None
            for batch in batches
        ],
        f"{DRIVES} SmartSSDs": [ours(OPT_66B, tokens, DRIVES, batch).throughput for batch in batches],
    }
    chart = Chart(
        "a: OPT-66B, 64K tokens",
        "batch",
        "tokens/s",
        batches,
        [Series(name, values) for name, values in rows.items()],
        log="xy",
    )
    short = 4096
    steps = [ours(OPT_66B, short, DRIVES, batch) for batch in batches]
    parts = Chart(
        f"b: OPT-66B, 4K tokens, {DRIVES} SmartSSDs",
        "batch",
        "share of a decode step, %",
        [str(batch) for batch in batches],
        shares(_PARTS, steps),
        style=Style.stack,
    )
    return Figure(
        "hilos-11",
        "11",
        "Throughput by batch, and what bounds a step",
        [chart, parts],
        f"Host memory holds {decode.host_batch(HILOS, OPT_66B, tokens)} sequences of 64K tokens beside the weights, as "
        "the paper says (HIL-18); drives go on to 16. With few short sequences a step lasts as long as the weights "
        f"take to reach the GPU: {100 * steps[2].share('weights'):.0f} % of it at batch 4.",
        "The context of panel b is ours.",
    )


def _figure_12() -> Figure:
    rates = [group * kernel_rate(group, KERNEL_HZ) / 1e9 for group in GROUPS]
    stated = {1: ("HIL-07", 11.9), 4: ("HIL-08", 46.8), 5: ("HIL-09", 56.3)}
    kernels = Chart(
        "a: attention kernel, 296 MHz, DDR4-2400",
        "queries per KV head",
        "GFLOPS",
        [str(group) for group in GROUPS],
        [Series("our kernel", rates)],
        [Published(value, key, "table 3", str(group), "our kernel") for group, (key, value) in stated.items()],
        Style.bars,
        origin=Origin.simulated,
    )
    tokens = 131072
    rows: dict[str, Callable[[ModelShape, int], Step | None]] = {
        "over FlexGen, 4 SSDs": flex_ssd,
        "over FlexGen, host memory": flex_dram,
    }
    speeds = Chart(
        f"b: {DRIVES} SmartSSDs, 128K tokens, batch 16",
        "model",
        "decode speed-up",
        [model.name for model in OTHERS],
        [
            Series(
                name, [over(ours(model, tokens, DRIVES), b) if (b := run(model, tokens)) else None for model in OTHERS]
            )
            for name, run in rows.items()
        ],
        [Published(1.16, "HIL-20", "lowest"), Published(3.36, "HIL-20", "highest")],
        Style.bars,
    )
    found = [value for one in speeds.series for value in one.values if value is not None]
    return Figure(
        "hilos-12",
        "12",
        "Kernels, and models with grouped queries or experts",
        [kernels, speeds],
        "Our kernels use more of the same memory's bandwidth than the paper's (94 % against 62 %), and all are "
        f"faster than a drive's 3 GB/s. Speed-ups are {min(found):.2f} to {max(found):.2f} (paper: 1.16 to 3.36).",
    )


def _figure_13() -> Figure:
    tokens = 32768
    charts, best = [], []
    for model in OPTS:
        work = Work(model, BATCH, tokens)
        grid = {(s, c): decode.attended(HILOS, work, Attending(16, s, c)) for s in SHARES for c in INTERVALS}
        base = grid[0.0, 1].throughput
        series = [Series(f"alpha {s:g}", [grid[s, c].throughput / base for c in INTERVALS]) for s in SHARES]
        names = [str(c) for c in INTERVALS]
        ratio = "throughput, alpha 0, c 1 = 1"
        charts.append(Chart(model.name, "tokens between writes (c)", ratio, names, series, style=Style.bars))
        best.append(best_share(model, tokens))
    found = ", ".join(f"{share:g} for {model.name}" for share, model in zip(best, OPTS, strict=True))
    return Figure(
        "hilos-13",
        "13",
        "Share of X-cache and tokens between writes, 32K tokens, 16 drives",
        charts,
        f"The best share is {found}; the paper's is 0.5 for all. With 4 FLOP per weight the GPU's work to rebuild K "
        "and V counts, and grows with the square of the width. Throughput hardly depends on the tokens between "
        "writes here: that 64 cost over 30 % is a cost of the vendor's runtime (HIL-22), which is not modelled.",
    )


_ANSWERS = (16, 64, 256, 1024, 4096)  # tokens out
_PROMPT = 32768


def by_answer() -> list[Series]:
    """Speed-up of 16 drives over FlexGen by the length of the answer."""
    return [
        Series(
            model.name,
            [
                answered(ours(model, _PROMPT, 16), _writes(16), n) / answered(flex_ssd(model, _PROMPT), _writes(0), n)
                for n in _ANSWERS
            ],
        )
        for model in OPTS
    ]


def _figure_14() -> Figure:
    series = by_answer()
    model, places = OPT_66B, []
    first: list[float] = []
    rest: list[float] = []
    for n in _ANSWERS[:3]:
        whole = prefill(model, _PROMPT, _writes(0)) + n * flex_ssd(model, _PROMPT).seconds
        for name, step, drives in (("FlexGen", flex_ssd(model, _PROMPT), 0), ("HILOS", ours(model, _PROMPT, 16), 16)):
            places.append(f"{name} {n}")
            first.append(prefill(model, _PROMPT, _writes(drives)) / whole)
            rest.append(n * step.seconds / whole)
    parts = Chart(
        f"{model.name}, 32K tokens in, 16 SmartSSDs",
        "tokens out",
        "time, FlexGen = 1",
        places,
        [Series("prefill", first), Series("decode", rest)],
        style=Style.stack,
    )
    chart = Chart(
        "speed-up over FlexGen, 4 SSDs",
        "tokens out",
        "times",
        _ANSWERS,
        series,
        [Published(6.08, "HIL-23", "largest")],
        log="x",
    )
    most = max(value for one in series for value in one.values if value is not None)
    at_64 = ", ".join(f"{one.values[1]:.2f}" for one in series)
    return Figure(
        "hilos-14",
        "14",
        "Time by length of the answer",
        [parts, chart],
        f"Longer answers hide the prefill, which is the same for both. With 64 tokens out ours is {at_64} times as "
        f"fast; it grows to {most:.2f} with 4K. The paper's largest is 6.08, of lengths that the text does not state.",
    )


def _figure_15() -> Figure:
    tokens, models = 65536, (*OPTS, GLAM_143B)
    rows: dict[str, list[float]] = {"ANS": [], "ANS + delayed writes": [], "ANS + X-cache": [], "all": []}
    for model in models:
        base, work = flex_ssd(model, tokens).throughput, Work(model, BATCH, tokens)
        rows["ANS"].append(near(model, tokens).throughput / base)
        rows["ANS + delayed writes"].append(ours(model, tokens, DRIVES, alpha=0.0).throughput / base)
        at_once = [decode.attended(HILOS, work, Attending(DRIVES, s, 0)) for s in SHARES]
        rows["ANS + X-cache"].append(max(step.throughput for step in at_once) / base)
        rows["all"].append(ours(model, tokens, DRIVES).throughput / base)
    chart = Chart(
        f"{DRIVES} SmartSSDs, 64K tokens, batch 16",
        "model",
        "throughput, 4 SSDs = 1",
        [model.name for model in models],
        [Series(name, values) for name, values in rows.items()],
        [Published(3.39, "HIL-24", "ANS alone, at most")],
        Style.bars,
    )
    return Figure(
        "hilos-15",
        "15",
        "What each part brings",
        [chart],
        "That attention near storage (ANS) alone brings 3.39 at most is an input, from which the rate of FlexGen's "
        "copies follows. Delayed writes bring little in device time: a flush of a token of 16 sequences is short "
        "beside reading 64K tokens of them.",
        "The context is ours.",
    )


def _figure_16() -> Figure:
    models, tokens = (OPT_66B, OPT_175B), 16384
    base = {model: costs.tokens_per_usd(HILOS, flex_ssd(model, tokens), 0) for model in models}

    def money_of(run: Callable[[ModelShape], Step | None], drives: int = 0, of: Machine = HILOS) -> list[float | None]:
        found: list[float | None] = []
        for model in models:
            step = run(model)
            found.append(None if step is None else costs.tokens_per_usd(of, step, drives) / base[model])
        return found

    systems = {
        "FlexGen, 4 SSDs": money_of(lambda model: flex_ssd(model, tokens)),
        "the same, H100": money_of(lambda model: flex_h100(model, tokens), of=WITH_H100),
        "FlexGen, host memory": money_of(lambda model: flex_dram(model, tokens)),
        "4 SmartSSDs": money_of(lambda model: ours(model, tokens, 4), 4),
        "8 SmartSSDs": money_of(lambda model: ours(model, tokens, 8), 8),
        "16 SmartSSDs": money_of(lambda model: ours(model, tokens, 16), 16),
    }
    money = Chart(
        "a: tokens/s for a dollar, 16K tokens",
        "model",
        "FlexGen, 4 SSDs = 1",
        [model.name for model in models],
        [Series(name, values) for name, values in systems.items()],
        style=Style.bars,
    )
    classes = {"256 / 100": (256, 100), "1K / 350": (1024, 350), "8K / 350": (8192, 350)}
    saved = 1 / xcache.written(OPT_175B, 0.5)
    plain = [16 * hardware.SMARTSSD_WRITTEN.value / OPT_175B.kv_bytes(1, sum(of)) / 1e6 for of in classes.values()]
    requests = Chart(
        "b: requests that 16 drives serve, OPT-175B",
        "tokens in / out",
        "millions",
        list(classes),
        [Series("K and V written", plain), Series("half of the work as X", [saved * of for of in plain])],
        [Published(4.08, "HIL-33", "long requests, more than", "8K / 350", "half of the work as X")],
        Style.bars,
        "y",
    )
    return Figure(
        "hilos-16",
        "16",
        "Tokens for a dollar, and endurance",
        [money, requests],
        f"Per dollar 16 drives give {systems['16 SmartSSDs'][0]:.2f} (OPT-66B) and {systems['16 SmartSSDs'][1]:.2f} "
        "(OPT-175B) times the tokens of FlexGen with 4 SSDs. X-cache writes a quarter less, which is 1.33 times the "
        "requests (paper: 1.34 to 1.47). The rest of the paper's gain comes from the baseline's small writes, whose "
        "amplification it does not state.",
        "The context of panel a is ours.",
    )


def _figure_17() -> Figure:
    tokens = 32768
    systems = {"FlexGen, 4 SSDs": 0, "4 SmartSSDs": 4, "8 SmartSSDs": 8, "16 SmartSSDs": 16}

    def step(model: ModelShape, drives: int) -> Step:
        return ours(model, tokens, drives) if drives else flex_ssd(model, tokens)

    watts = {n: costs.watts_by_part(HILOS, n) for n in systems.values()}
    base = costs.joules_per_token(HILOS, step(OPT_66B, 0), 0)
    energy = Chart(
        "a: energy of a token, OPT-66B, 32K tokens",
        "",
        "FlexGen, 4 SSDs = 1",
        list(systems),
        [
            Series(part, [watts[n][part] / step(OPT_66B, n).throughput / base for n in systems.values()])
            for part in watts[0]
        ],
        style=Style.stack,
    )
    contexts = (8192, 16384, 32768)
    rows: dict[str, list[float | None]] = {
        "vLLM, 2 x 4 RTX A6000": [clustered(OPT_66B, n) for n in contexts],
        "16 SmartSSDs, one A100": [answered(ours(OPT_66B, n, 16), _writes(16)) for n in contexts],
    }
    nodes = Chart(
        "b: several hosts, OPT-66B, 64 tokens out",
        "tokens in",
        "tokens/s with the prefill",
        _names(contexts),
        [Series(name, values) for name, values in rows.items()],
        style=Style.bars,
    )
    saved = [
        100 * (1 - costs.joules_per_token(HILOS, step(m, 16), 16) / costs.joules_per_token(HILOS, step(m, 0), 0))
        for m in OPTS
    ]
    gains = [b / a for a, b in zip(*rows.values(), strict=True) if a and b]
    return Figure(
        "hilos-17",
        "17",
        "Energy of a token, and GPUs of several hosts",
        [energy, nodes],
        f"16 drives save {min(saved):.0f} to {max(saved):.0f} % of the energy (paper: up to 85 %). Powers are those of "
        "data sheets, drawn all the time; the paper measures them and states few. Beside vLLM on eight GPUs in two "
        f"hosts, ours has {min(gains):.2f} to {max(gains):.2f} of the throughput, where the paper is ahead of it: the "
        "K and V of the sequences that fit pass memory at 6 TB/s there, 48 GB/s here, and no cost of vLLM's is "
        "published that would make up for it.",
    )


FIGURES = {
    "2": _figure_2,
    "4": _figure_4,
    "10": _figure_10,
    "11": _figure_11,
    "12": _figure_12,
    "13": _figure_13,
    "14": _figure_14,
    "15": _figure_15,
    "16": _figure_16,
    "17": _figure_17,
}


def paper() -> Paper:
    """All figures."""
    return Paper("hilos", "HILOS", [figure() for figure in FIGURES.values()])
