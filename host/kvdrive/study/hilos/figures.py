"""HILOS' figures: batch 16, weights in host memory up to 100 billion parameters, A100 40 GB, up to 16 SmartSSDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvdrive.perf import hardware, xcache
from kvdrive.perf.kernel import GROUPS, kernel_rate
from kvdrive.perf.shapes import (
    GLAM_143B,
    MIXTRAL_8X7B,
    OPT_30B,
    OPT_66B,
    OPT_175B,
    QWEN2_5_32B,
    ModelShape,
)
from kvdrive.study.figure import Chart, Figure, Origin, Paper, Published, Series, Style
from kvdrive.study.hilos import machine
from kvdrive.study.hilos.machine import HILOS
from kvdrive.study.model import costs, decode
from kvdrive.study.model.decode import Attending, Step, Work
from kvdrive.study.series import over, shares
from kvdrive.study.stated import remembered

BATCH = 16
CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072)
OPTS = (OPT_30B, OPT_66B, OPT_175B)
OTHERS = (QWEN2_5_32B, MIXTRAL_8X7B, GLAM_143B)
SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)
INTERVALS = (1, 4, 8, 16, 32, 64)  # tokens between two writes
KERNEL_HZ = 296.05e6


@remembered
def ours(model: ModelShape, tokens: int, drives: int, batch: int = BATCH, alpha: float | None = None) -> Step:
    """A step with attention in the drives. `alpha` None: the best share of X-cache."""
    work = Work(model, batch, tokens)
    shares = SHARES if alpha is None else (alpha,)
    steps = [decode.attended(HILOS, work, Attending(drives, share)) for share in shares]
    return min(steps, key=lambda step: step.seconds)


@remembered
def flex_ssd(model: ModelShape, tokens: int, batch: int = BATCH) -> Step:
    """FlexGen with 4 SSDs."""
    return machine.flexgen(HILOS, Work(model, batch, tokens))


def flex_16(model: ModelShape, tokens: int, batch: int = BATCH) -> Step:
    """FlexGen with 16 SSDs of 3 GB/s behind one link."""
    rate = min(16 * hardware.SMARTSSD_P2P.value, HILOS.uplink.value)
    return machine.flexgen(HILOS, Work(model, batch, tokens), rate)


def flex_dram(model: ModelShape, tokens: int, batch: int = BATCH) -> Step | None:
    """FlexGen from host memory, with as many sequences as fit; None if none does."""
    fits = min(batch, decode.host_batch(HILOS, model, tokens))
    return machine.flexgen_dram(HILOS, Work(model, fits, tokens)) if fits else None


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


def _figure_2() -> Figure:
    steps = [flex_ssd(OPT_175B, tokens) for tokens in CONTEXTS]
    kinds = ("K and V", "CPU attention", "weights", "GPU")
    chart = Chart(
        "OPT-175B, batch 16, FlexGen with 4 SSDs",
        "tokens",
        "share of a decode step, %",
        [f"{tokens // 1024}K" for tokens in CONTEXTS],
        shares(kinds, steps),
        [Published(60, "HIL-01", "K and V transfers take more than this")],
        Style.stack,
    )
    return Figure(
        "hilos-2",
        "2",
        "FlexGen's step is reading K and V",
        [chart],
        f"Transfers of K and V take {100 * steps[-1].share('K and V'):.0f} % of our step and the CPU's "
        "attention nearly all "
        "of the rest; the paper says that transfers take more than 60 %. The CPU's rate is an input (HIL-24), and the "
        "paper may count attention otherwise.",
    )


def _figure_4() -> Figure:
    names = [f"{tokens // 1024}K" for tokens in CONTEXTS]
    ratio = Chart(
        "bytes over the host interface",
        "tokens",
        "without / with drives that attend",
        CONTEXTS,
        [Series("ours", [xcache.interface_ratio(tokens) for tokens in CONTEXTS])],
        [Published(65536.5, "HIL-02", "equation 3 at 128K", 131072)],
        log="xy",
    )
    steps = [ours(OPT_66B, tokens, 16, alpha=0.0) for tokens in CONTEXTS]
    use = Chart(
        "use of the host, OPT-66B, 16 drives, no X-cache",
        "tokens",
        "busy, % of a step",
        names,
        [
            Series(name, [100 * step.busy.get(key, 0.0) / step.seconds for step in steps])
            for name, key in (("GPU", "gpu"), ("link to the GPU", "link"))
        ],
        [Published(20, "HIL-03", "less than this")],
        Style.bars,
    )
    return Figure(
        "hilos-4",
        "4",
        "Attention near storage empties the interconnect and the host",
        [ratio, use],
        "The ratio of bytes is equation 3 itself. The paper says that the host is used for less than 20 % of a step. "
        "Here that holds from 32K tokens on; with shorter contexts a step is shorter, and the link carries the same "
        "weights.",
        "What the other panels of the figure show is in none of the claims that we have.",
    )


def _figure_10() -> Figure:
    charts = []
    for model in OPTS:
        base = {tokens: flex_ssd(model, tokens) for tokens in CONTEXTS[3:]}
        systems: dict[str, Sequence[Step | None]] = {
            "FlexGen, 4 SSDs": list(base.values()),
            "FlexGen, host memory": [flex_dram(model, tokens) for tokens in base],
            "FlexGen, 16 SSDs": [flex_16(model, tokens) for tokens in base],
        }
        systems |= {f"{n} SmartSSDs": [ours(model, tokens, n) for tokens in base] for n in (4, 8, 16)}
        series = [
            Series(name, [over(step, flex) for step, flex in zip(steps, base.values(), strict=True)])
            for name, steps in systems.items()
        ]
        names = [f"{tokens // 1024}K" for tokens in base]
        published = [Published(7.86, "HIL-15", "best over others")] if model is OPT_175B else []
        charts.append(
            Chart(model.name, "tokens", "throughput, FlexGen with 4 SSDs = 1", names, series, published, Style.bars)
        )
    best = max(ours(m, t, 16).throughput / flex_ssd(m, t).throughput for m in OPTS for t in CONTEXTS[3:])
    four = [ours(m, t, 4).throughput / d.throughput for m in OPTS for t in CONTEXTS[3:] if (d := flex_dram(m, t))]
    return Figure(
        "hilos-10",
        "10",
        "Throughput of the OPT models",
        charts,
        f"16 drives are {best:.2f} times as fast as FlexGen with 4 SSDs at best; the paper's best is 7.86, over "
        "a baseline "
        f"that it does not name. 4 drives reach {min(four):.2f} to {max(four):.2f} of FlexGen from host memory "
        "(paper: 1.10 "
        "to 1.36): our FlexGen attends on the CPU at 29 GB/s, more than 4 drives give. 16 SSDs without engines are "
        "0.97 times as fast as 4 faster ones (paper: 0.64 to 0.94), since they share one link.",
    )


def _figure_11() -> Figure:
    batches, tokens = (1, 2, 4, 8, 16), 65536
    rows: dict[str, list[float | None]] = {
        "FlexGen, 4 SSDs": [flex_ssd(OPT_66B, tokens, batch).throughput for batch in batches],
        "FlexGen, host memory": [
            step.throughput if (step := flex_dram(OPT_66B, tokens, batch)) and step.work.batch == batch else None
            for batch in batches
        ],
        "16 SmartSSDs": [ours(OPT_66B, tokens, 16, batch).throughput for batch in batches],
    }
    chart = Chart(
        "OPT-66B, 64K tokens",
        "batch",
        "tokens/s",
        batches,
        [Series(name, values) for name, values in rows.items()],
        log="xy",
    )
    return Figure(
        "hilos-11",
        "11",
        "Throughput by batch",
        [chart],
        f"Host memory holds {decode.host_batch(HILOS, OPT_66B, tokens)} sequences beside the weights, as the "
        "paper says "
        "(HIL-18); drives go on to 16.",
    )


def _figure_12() -> Figure:
    rates = [group * kernel_rate(group, KERNEL_HZ) / 1e9 for group in GROUPS]
    stated = {1: ("HIL-07", 11.9), 4: ("HIL-08", 46.8), 5: ("HIL-09", 56.3)}
    kernels = Chart(
        "attention kernel, 296 MHz, DDR4-2400",
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
        "16 SmartSSDs, 128K tokens, batch 16",
        "model",
        "decode speed-up",
        [model.name for model in OTHERS],
        [
            Series(name, [over(ours(model, tokens, 16), b) if (b := run(model, tokens)) else None for model in OTHERS])
            for name, run in rows.items()
        ],
        [
            Published(1.16, "HIL-20", "lowest"),
            Published(3.36, "HIL-20", "highest"),
        ],
        Style.bars,
    )
    found = [value for one in speeds.series for value in one.values if value is not None]
    return Figure(
        "hilos-12",
        "12",
        "Kernels, and models with grouped queries or experts",
        [kernels, speeds],
        "Our kernels use more of the same memory's bandwidth than the paper's (94 % against 62 %), and all are "
        "faster than "
        f"a drive's 3 GB/s. Speed-ups are {min(found):.2f} to {max(found):.2f} (paper: 1.16 to 3.36).",
    )


def _figure_13() -> Figure:
    tokens = 32768
    base = ours(OPT_66B, tokens, 16, alpha=0.0)
    by_share = Chart(
        "share of X-cache, 32K tokens, 16 drives",
        "share of the work as X (alpha)",
        "throughput, alpha 0 = 1",
        [f"{share:g}" for share in SHARES],
        [
            Series(
                model.name,
                [
                    ours(model, tokens, 16, alpha=s).throughput / ours(model, tokens, 16, alpha=0.0).throughput
                    for s in SHARES
                ],
            )
            for model in (OPT_30B, OPT_66B)
        ],
        style=Style.bars,
    )
    steps = [decode.attended(HILOS, Work(OPT_66B, BATCH, tokens), Attending(16, 0.0, c)) for c in INTERVALS]
    written = [step.written / base.written for step in steps]
    by_interval = Chart(
        "tokens between writes, OPT-66B",
        "tokens between writes (c)",
        "relative to c = 16",
        INTERVALS,
        [
            Series("throughput", [step.throughput / base.throughput for step in steps]),
            Series("bytes written", written),
        ],
        log="xy",
    )
    best = [best_share(model, tokens) for model in (OPT_30B, OPT_66B)]
    return Figure(
        "hilos-13",
        "13",
        "Share of X-cache, and tokens between writes",
        [by_share, by_interval],
        f"The best share is {best[0]:g} for OPT-30B and {best[1]:g} for OPT-66B; the paper's is 0.5 for all. "
        "With 4 FLOP per "
        "weight the GPU's work to rebuild K and V counts, and grows with the square of the width. Bytes written are "
        "least from 16 tokens on, the paper's best interval. Throughput hardly depends on it here: that 64 tokens cost "
        "over 30 % is a cost of the vendor's runtime (HIL-22), which is not modelled.",
    )


_ANSWERS = (16, 64, 256, 1024, 4096)  # tokens out


def by_answer() -> list[Series]:
    """Speed-up of 16 drives over FlexGen by the length of the answer, after a prompt of 32K tokens."""
    tokens, series = 32768, []
    reads, writes = 4 * hardware.PM9A3.write.value, 16 * hardware.SMARTSSD.write.value
    for model in OPTS:
        theirs, mine = flex_ssd(model, tokens).seconds, ours(model, tokens, 16).seconds
        before, after = prefill(model, tokens, reads), prefill(model, tokens, writes)
        series.append(Series(model.name, [(before + n * theirs) / (after + n * mine) for n in _ANSWERS]))
    return series


def _figure_14() -> Figure:
    series = by_answer()
    chart = Chart(
        "16 SmartSSDs, 32K tokens in, batch 16",
        "tokens out",
        "speed-up over FlexGen, 4 SSDs",
        _ANSWERS,
        series,
        [Published(6.08, "HIL-23", "largest")],
        log="x",
    )
    most = max(value for one in series for value in one.values if value is not None)
    return Figure(
        "hilos-14",
        "14",
        "Speed-up by length of the answer",
        [chart],
        f"Longer answers hide the prefill, which is the same for both. Ours grows to {most:.2f}; the paper's "
        "largest is 6.08.",
    )


def _figure_15() -> Figure:
    tokens = 65536
    charts_rows: dict[str, list[float]] = {"attention near storage": [], "+ X-cache": [], "+ delayed writes": []}
    for model in OPTS:
        base = flex_ssd(model, tokens).throughput
        at_once = [decode.attended(HILOS, Work(model, BATCH, tokens), Attending(16, s, 0)) for s in SHARES]
        charts_rows["attention near storage"].append(at_once[0].throughput / base)
        charts_rows["+ X-cache"].append(max(step.throughput for step in at_once) / base)
        charts_rows["+ delayed writes"].append(ours(model, tokens, 16).throughput / base)
    chart = Chart(
        "16 SmartSSDs, 64K tokens, batch 16",
        "model",
        "throughput, FlexGen with 4 SSDs = 1",
        [model.name for model in OPTS],
        [Series(name, values) for name, values in charts_rows.items()],
        [Published(3.39, "HIL-24", "attention near storage alone, at most")],
        Style.bars,
    )
    return Figure(
        "hilos-15",
        "15",
        "What each part brings",
        [chart],
        "That attention near storage alone brings 3.39 is an input, from which the rate of the CPU follows. "
        "X-cache helps "
        "the narrower models; delayed writes bring little in device time, since a drive that takes pages of 4 "
        "KiB from 16 "
        "sequences is never limited by them.",
    )


def _figure_16() -> Figure:
    classes = {"256 / 100": (256, 100), "1K / 350": (1024, 350), "8K / 350": (8192, 350)}
    saved = 1 / xcache.written(OPT_175B, 0.5)
    chart = Chart(
        "OPT-175B, half of the work as X",
        "tokens in / out",
        "requests in the drives' life, without X-cache = 1",
        list(classes),
        [Series("X-cache", [saved for _ in classes])],
        [
            Published(1.34, "HIL-31", "lowest"),
            Published(1.47, "HIL-31", "highest"),
        ],
        Style.bars,
    )
    lives = [
        16 * hardware.SMARTSSD_WRITTEN.value / OPT_175B.kv_bytes(1, sum(lengths)) * saved / 1e6
        for lengths in classes.values()
    ]
    requests = Chart(
        "requests that 16 drives serve",
        "tokens in / out",
        "millions",
        list(classes),
        [Series("X-cache", lives)],
        [Published(4.08, "HIL-33", "long requests, more than", "8K / 350", "X-cache")],
        Style.bars,
        "y",
    )
    return Figure(
        "hilos-16",
        "16",
        "Endurance",
        [chart, requests],
        "X-cache writes a quarter less, which is 1.33 times the requests (paper: 1.34 to 1.47). The rest of the "
        "paper's "
        "gain comes from the baseline's small writes, whose amplification it does not state.",
    )


def _figure_17() -> Figure:
    tokens = 32768
    systems = {"FlexGen, 4 SSDs": 0, "4 SmartSSDs": 4, "8 SmartSSDs": 8, "16 SmartSSDs": 16}
    energy, value = {}, {}
    for name, count in systems.items():
        steps = [ours(m, tokens, count) if count else flex_ssd(m, tokens) for m in OPTS]
        energy[name] = [costs.joules_per_token(HILOS, step, count) / 1e3 for step in steps]
        value[name] = [costs.usd_per_million_tokens(HILOS, step, count) for step in steps]
    names = [model.name for model in OPTS]
    charts = [
        Chart(
            "energy, 32K tokens",
            "model",
            "kJ per token",
            names,
            [Series(name, values) for name, values in energy.items()],
            style=Style.bars,
        ),
        Chart(
            f"price of the machine over {costs.YEARS} years",
            "model",
            "USD per million tokens",
            names,
            [Series(name, values) for name, values in value.items()],
            style=Style.bars,
        ),
    ]
    saved = [100 * (1 - a / b) for a, b in zip(energy["16 SmartSSDs"], energy["FlexGen, 4 SSDs"], strict=True)]
    return Figure(
        "hilos-17",
        "17",
        "Energy and price of a token",
        charts,
        f"16 drives save {min(saved):.0f} to {max(saved):.0f} % of the energy (paper: up to 85 %, over its slowest "
        "baseline). Powers are those of data sheets, drawn all the time; the paper measures them and states few.",
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
