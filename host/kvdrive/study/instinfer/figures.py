"""InstInfer's figures: OPT-13B, 1024 tokens in and 1024 out, so 1536 on average, on an A6000 with drives."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.perf.shapes import HALF_BYTES, OPT_13B
from kvdrive.study.figure import Chart, Figure, Origin, Paper, Published, Series, Style
from kvdrive.study.instinfer import engine, machine, stated
from kvdrive.study.instinfer.machine import INSTINFER
from kvdrive.study.model import decode, drives
from kvdrive.study.model.decode import Attending, Step, Work
from kvdrive.study.series import rate, shares
from kvdrive.study.stated import remembered

TOKENS = 1536
BATCHES = (4, 8, 16, 32, 64, 128, 256)
SSD_BATCH = 64  # the one at which FlexGen's K and V are on the SSD
PROMPT = 1024
RATIO = 8
COUNTS = (1, 2, 4, 8, 12, 16, 20)  # drives
RATIOS = (2, 4, 8, 16, 32)
KINDS = ("K and V", "attention", "weights", "GPU", "queries", "software")

# What FlexGen holds in the GPU beside the weights while it computes a layer of the prefill (`mha`, pytorch_backend.py,
# github.com/FMInference/FlexLLMGen): of the scores' size its `attn_weights` twice, since torch.where and F.softmax each
# return another tensor than they are given; of the layer's width `inputs`, its layer norm `hidden`, `q`, `k` and `v`.
_SCORES = ("attn_weights", "torch.where(mask, attn_weights, -1e4)")
_WIDE = ("inputs", "hidden", "q", "k", "v")


def flexgen_memory(batch: int) -> float:
    """Bytes of GPU memory for a prefill by FlexGen: weights, K and V of the layer before, which leave meanwhile, and
    what its published code holds."""
    scores = batch * OPT_13B.heads * PROMPT**2 * HALF_BYTES
    wide = batch * PROMPT * OPT_13B.hidden * HALF_BYTES
    leaving = OPT_13B.kv_bytes(batch, PROMPT) / OPT_13B.layers
    return OPT_13B.weight_bytes + leaving + len(_SCORES) * scores + len(_WIDE) * wide


def flexgen_batch() -> int:
    """The largest of BATCHES that fits."""
    return max(batch for batch in BATCHES if flexgen_memory(batch) <= INSTINFER.gpu.memory.value)


@remembered
def dense(batch: int, count: int = 1, sparse: float = 1.0) -> Step:
    """A step with attention in `count` drives."""
    return decode.attended(INSTINFER, Work(OPT_13B, batch, TOKENS), Attending(count, sparse=sparse))


def sparf(batch: int, count: int = 1) -> Step:
    """The same with SparF 1/8, as our drive executes it."""
    return dense(batch, count, executed_share())


@remembered
def flexgen_step(batch: int, count: int = 1) -> Step:
    """A step of FlexGen, whatever batch its prefill can run."""
    return machine.flexgen(Work(OPT_13B, batch, TOKENS), count)


def flexgen(batch: int, count: int = 1) -> Step | None:
    """A step of FlexGen; None where its prefill does not fit."""
    return flexgen_step(batch, count) if batch <= flexgen_batch() else None


@remembered
def deepspeed(batch: int) -> Step:
    """A step of DeepSpeed."""
    return machine.deepspeed(Work(OPT_13B, batch, TOKENS))


def executed_share(ratio: int = RATIO, tokens: int = TOKENS) -> float:
    """Device time of SparF over exact attention, executed by our drive with K of similar neighbours."""
    return drives.sparse_share("instcsd", 8, tokens, OPT_13B.head_dim, ratio, in_runs=True)


def _figure_4() -> Figure:
    batches = BATCHES[:5]
    in_host = deepspeed(16).throughput
    rows: dict[str, list[float | None]] = {
        "DeepSpeed": [deepspeed(batch).throughput for batch in batches],
        "FlexGen": [rate(flexgen(batch)) for batch in batches],
    }
    chart = Chart(
        "OPT-13B, 1024 + 1024 tokens, 96 GB of host memory",
        "batch",
        "tokens/s",
        batches,
        [Series(name, values) for name, values in rows.items()],
        [Published(in_host / stated.DEEPSPEED_FALL.printed, "INST-04", "97.01 % less", 32, "DeepSpeed")],
        log="xy",
    )
    return Figure(
        "instinfer-4",
        "4",
        "Throughput falls where K and V leave a memory",
        [chart],
        "Both fall where K and V leave the GPU and again where they leave host memory, which follows from sizes: "
        "DeepSpeed from batch 32 on, where two copies do not fit, FlexGen at 64, as in the paper. The paper has the "
        "first drop at batch 8, ours comes after it. How deep DeepSpeed falls is an input (32.6 times), which says how "
        "fast the kernel swaps.",
    )


def _figure_5() -> Figure:
    steps = [step for batch in BATCHES[:5] if (step := flexgen(batch))]
    chart = Chart(
        "FlexGen, one SSD",
        "batch",
        "share of a decode step, %",
        [str(batch) for batch in BATCHES[:5]],
        shares(KINDS, steps),
        [Published(98.94, "INST-05", "access to K and V, at most")],
        Style.stack,
    )
    return Figure(
        "instinfer-5",
        "5",
        "FlexGen's decode step",
        [chart],
        f"At batch 4 and 8 K and V are in the GPU, and weights take {100 * steps[0].share('weights'):.0f} and "
        f"{100 * steps[1].share('weights'):.0f} % of a step, as the paper says they dominate. At batch 64 access to K "
        "and V takes 98.94 %, from which follows what FlexGen's software takes for a layer.",
    )


def _by_batch(key: str, number: str, count: int, says: str, published: list[Published]) -> Figure:
    unit = flexgen_step(SSD_BATCH).throughput
    rows: dict[str, list[float | None]] = {
        "DeepSpeed": [deepspeed(batch).throughput for batch in BATCHES],
        "FlexGen": [rate(flexgen(batch, count)) for batch in BATCHES],
        "dense": [dense(batch, count).throughput for batch in BATCHES],
        "SparF 1/8": [sparf(batch, count).throughput for batch in BATCHES],
    }
    plural = "s" if count > 1 else ""
    chart = Chart(
        f"OPT-13B, 1024 + 1024 tokens, {count} drive{plural}",
        "batch",
        "throughput, FlexGen from SSD = 1",
        BATCHES,
        [Series(name, [None if v is None else v / unit for v in values]) for name, values in rows.items()],
        published,
        log="xy",
    )
    return Figure(
        key,
        number,
        f"Throughput by batch, {count} drive{plural}",
        [chart],
        says,
        "FlexGen with SparQ is left out: which pages of its SSD SparQ reads is not stated.",
    )


def _figure_12() -> Figure:
    flex = flexgen_step(SSD_BATCH).throughput
    best = max(sparf(batch).throughput for batch in BATCHES) / flex
    return _by_batch(
        "instinfer-12",
        "12",
        1,
        f"Dense attention in the drive is {dense(SSD_BATCH).throughput / flex:.2f} times as fast as FlexGen at batch "
        "64 (paper: 6.85), which says nothing about the model: FlexGen's rate and the share of K and V in this step "
        f"are inputs. SparF as our drive executes it is {sparf(256).throughput / dense(256).throughput:.2f} times as "
        f"fast as dense at batch 256 (paper: 2.08), and {best:.1f} times as fast as FlexGen from SSD (paper: 11.1): "
        "with 1.5K tokens a head has few pages, and nearly all of them hold something that was chosen. FlexGen's "
        f"prefill fits up to batch {flexgen_batch()}, as the paper says.",
        [
            Published(6.85, "INST-07", "dense over FlexGen, batch 64", 64, "dense"),
            Published(11.1, "INST-10", "SparF over FlexGen, at most"),
        ],
    )


def _figure_13() -> Figure:
    gain = [dense(batch, 2).throughput / dense(batch).throughput for batch in (64, 256)]
    return _by_batch(
        "instinfer-13",
        "13",
        2,
        "That FlexGen gains nothing from a second SSD is an input (INST-13). A second drive that attends makes dense "
        f"attention {gain[0]:.2f} times as fast at batch 64 and {gain[1]:.2f} times at 256: attention and commands are "
        "shared by the drives, the host's software for a layer is not.",
        [Published(1, "INST-13", "FlexGen, as with one SSD", 64, "FlexGen")],
    )


def _breakdown(key: str, number: str, kind: str, of: Callable[[int, int], Step]) -> Figure:
    systems: list[tuple[str, Step]] = []
    for batch in (4, 64, 256):
        if step := flexgen(batch):
            systems.append((f"FlexGen {batch}", step))
        systems += [(f"{kind} {batch}", of(batch, 1)), (f"{kind}-2 {batch}", of(batch, 2))]
    by_name = dict(systems)
    two, flex = by_name[f"{kind}-2 64"], flexgen_step(SSD_BATCH)
    saved = [
        100 * (1 - by_name[name].parts["attention"] / flex.parts["K and V"]) for name in (f"{kind} 64", f"{kind}-2 64")
    ]
    chart = Chart(
        f"{kind}, 1 and 2 drives, batch 4, 64 and 256",
        "",
        "share of a decode step, %",
        [name for name, _ in systems],
        shares(KINDS, [step for _, step in systems]),
        style=Style.stack,
    )
    stated_of = "; the paper says 88.1 and 94.0 % of dense" if kind == "dense" else ""
    return Figure(
        key,
        number,
        f"Parts of a decode step, {kind}",
        [chart],
        f"At batch 64 access to K and V takes {100 * by_name[f'{kind} 64'].share('attention'):.1f} % of a step with "
        f"one drive and {100 * two.share('attention'):.1f} % with two, and {saved[0]:.1f} and {saved[1]:.1f} % less "
        f"time than FlexGen's{stated_of}.",
        "FlexGen holds the K and V of batch 4 in the GPU and cannot run 256.",
    )


def _figure_16() -> Figure:
    cycles = [engine.exact(TOKENS, OPT_13B.head_dim), engine.sparse(TOKENS, OPT_13B.head_dim, RATIO)]
    units = ("filter", "logit-0", "argtopk", "logit", "softmax", "attend")
    chart = Chart(
        "one head, 1.5K tokens, our kernels",
        "",
        "share of the engine's cycles, %",
        ["dense", "SparF 1/8"],
        [Series(unit, [100 * of.get(unit, 0.0) / sum(of.values()) for of in cycles]) for unit in units],
        style=Style.stack,
        origin=Origin.simulated,
    )
    first = 100 * cycles[1]["logit-0"] / sum(cycles[1].values())
    return Figure(
        "instinfer-16",
        "16",
        "What the engine does",
        [chart],
        f"SparF adds logit-0, the scores from part of K ({first:.0f} % of its cycles), and argtopk, and computes an "
        "eighth of the rest; the paper says that the added logits are paid back. With 1.5K tokens nearly every page "
        "holds something that was chosen, so that all of them pass the filters, which work beside the sums.",
        "Cycles of each kernel's simulated RTL, scaled to the bytes, keys or scores of one head; all pages are read.",
    )


def _figure_17() -> Figure:
    scaled = Chart(
        "a: batch 256",
        "drives",
        "throughput, 1 drive = 1",
        COUNTS,
        [
            Series(name, [of(256, n).throughput / of(256, 1).throughput for n in COUNTS])
            for name, of in (("dense", dense), ("SparF 1/8", sparf))
        ],
        log="x",
    )
    by_ratio = Chart(
        "b: batch 256",
        "compression ratio 1/n",
        "throughput, dense = 1",
        RATIOS,
        [
            Series(
                f"{n} drive{'s' if n > 1 else ''}",
                [dense(256, n, executed_share(r)).throughput / dense(256, n).throughput for r in RATIOS],
            )
            for n in (1, 2)
        ],
        [Published(2.08, "INST-09", "SparF 1/8 over dense, one drive", 8, "1 drive")],
        log="x",
    )
    return Figure(
        "instinfer-17",
        "17",
        "Throughput by drives, and by SparF's compression ratio",
        [scaled, by_ratio],
        f"20 drives are {scaled.series[0].values[-1]:.1f} times as fast as one with dense attention and "
        f"{scaled.series[1].values[-1]:.1f} times with SparF. Throughput rises with the compression ratio, as the "
        f"paper says; at 1/8 it is {by_ratio.series[0].values[2]:.2f} times that of dense (paper: 2.08), with the "
        "pages that our drive reads.",
    )


def paper() -> Paper:
    """All figures."""
    return Paper(
        "instinfer",
        "InstInfer",
        [
            _figure_4(),
            _figure_5(),
            _figure_12(),
            _figure_13(),
            _breakdown("instinfer-14", "14", "dense", dense),
            _breakdown("instinfer-15", "15", "SparF", sparf),
            _figure_16(),
            _figure_17(),
        ],
        [("6", "rooflines, of which none of the claims that we have says a number")],
    )
