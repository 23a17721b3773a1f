"""InstInfer's figures: OPT-13B, 1024 tokens in and 1024 out, so 1536 on average, on an A6000 with one or two drives."""

from __future__ import annotations

from kvdrive.perf.shapes import HALF_BYTES, OPT_13B
from kvdrive.study.figure import Chart, Figure, Paper, Published, Series, Style
from kvdrive.study.instinfer import inputs, machine, stated
from kvdrive.study.instinfer.machine import INSTINFER
from kvdrive.study.model import decode, drives
from kvdrive.study.model.decode import Attending, Step, Work
from kvdrive.study.series import rate, shares

TOKENS = 1536
BATCHES = (4, 8, 16, 32, 64, 128, 256)
PROMPT = 1024
KINDS = ("K and V", "attention", "GPU", "software", "queries")


def paper_pages() -> float:
    """Bytes of SparF 1/8 over those of exact attention, with the pages that the paper states."""
    return inputs.PAGES_READ.value


def flexgen_memory(batch: int) -> float:
    """Bytes of GPU memory for a prefill by FlexGen: weights, K and V of the layer before, which leave meanwhile, and
    what its published `mha` (flexllmgen/pytorch_backend.py) holds when it computes the softmax: scores and their
    softmax, and five tensors of a layer's width: its input, the normed input, q, k and v."""
    model = OPT_13B
    scores = batch * model.heads * PROMPT**2 * HALF_BYTES
    wide = batch * PROMPT * model.hidden * HALF_BYTES
    return model.weight_bytes + model.kv_bytes(batch, PROMPT) / model.layers + 2 * scores + 5 * wide


def flexgen_batch() -> int:
    """The largest of BATCHES that fits."""
    return max(batch for batch in BATCHES if flexgen_memory(batch) <= INSTINFER.gpu.memory.value)


def dense(batch: int, count: int = 1, sparse: float = 1.0) -> Step:
    """A step with attention in `count` drives."""
    return decode.attended(INSTINFER, Work(OPT_13B, batch, TOKENS), Attending(count, sparse=sparse))


def flexgen_step(batch: int, count: int = 1) -> Step:
    """A step of FlexGen, whatever batch its GPU memory holds."""
    return machine.flexgen_one_ssd(INSTINFER, Work(OPT_13B, batch, TOKENS), count)


def flexgen(batch: int) -> Step | None:
    """A step of FlexGen; None where its prefill does not fit."""
    return flexgen_step(batch) if batch <= flexgen_batch() else None


def deepspeed(batch: int) -> Step:
    """A step of DeepSpeed from host memory."""
    return machine.deepspeed(INSTINFER, Work(OPT_13B, batch, TOKENS))


def executed_share(ratio: int = 8, tokens: int = TOKENS) -> float:
    """Device time of SparF over exact attention, executed by our drive with K of similar neighbours."""
    return drives.sparse_share("instcsd", 8, tokens, OPT_13B.head_dim, ratio, in_runs=True)


def _figure_4() -> Figure:
    batches = BATCHES[:5]
    unit = deepspeed(16).throughput
    chart = Chart(
        "DeepSpeed, K and V in 96 GB of host memory",
        "batch",
        "throughput, batch 16 = 1",
        batches,
        [Series("DeepSpeed", [deepspeed(batch).throughput / unit for batch in batches])],
        [Published(1 / stated.DEEPSPEED_FALL.printed, "INST-04", "97.01 % less at batch 32", 32)],
        log="xy",
    )
    return Figure(
        "instinfer-4",
        "4",
        "DeepSpeed falls off a cliff when host memory is full",
        [chart],
        "The batch at which it falls is modelled: weights and two copies of K and V exceed 96 GB from batch 32 "
        "on. How deep "
        "it falls is an input (32.6 times), which says how fast the kernel swaps.",
    )


def _figure_5() -> Figure:
    steps = [step for batch in BATCHES[:5] if (step := flexgen(batch))]
    chart = Chart(
        "FlexGen, one SSD",
        "batch",
        "share of a decode step, %",
        [str(batch) for batch in BATCHES[:5]],
        shares(KINDS, steps),
        [Published(98.94, "INST-05", "share of access to K and V")],
        Style.stack,
    )
    return Figure(
        "instinfer-5",
        "5",
        "FlexGen's decode step is access to K and V",
        [chart],
        f"K and V take {100 * steps[-1].share('K and V'):.1f} % of our step at batch 64; the paper says 98.94 %, "
        "which leaves six times as much for the rest. The rate of the path from SSD to GPU (1.33 GB/s) is an input.",
    )


def _figure_12() -> Figure:
    unit = flexgen_step(64)
    ours = executed_share()
    rows: dict[str, list[float | None]] = {
        "FlexGen, 1 SSD": [rate(flexgen(batch)) for batch in BATCHES],
        "DeepSpeed, host memory": [deepspeed(batch).throughput for batch in BATCHES],
        "dense, 1 drive": [dense(batch).throughput for batch in BATCHES],
        "SparF 1/8, the paper's pages": [dense(batch, sparse=paper_pages()).throughput for batch in BATCHES],
        "SparF 1/8, executed by our drive": [dense(batch, sparse=ours).throughput for batch in BATCHES],
    }
    chart = Chart(
        "OPT-13B, 1024 + 1024 tokens",
        "batch",
        "throughput, FlexGen at batch 64 = 1",
        BATCHES,
        [Series(name, [None if v is None else v / unit.throughput for v in values]) for name, values in rows.items()],
        [
            Published(6.85, "INST-07", "dense over FlexGen, batch 64", 64),
            Published(11.1, "INST-10", "SparF over FlexGen, at most"),
        ],
        log="xy",
    )
    dense_ratio = dense(64).throughput / unit.throughput
    sparse_ratio = dense(256, sparse=paper_pages()).throughput / dense(256).throughput
    best = max(value for value in rows["SparF 1/8, the paper's pages"] if value is not None) / unit.throughput
    return Figure(
        "instinfer-12",
        "12",
        "Throughput by batch, one drive",
        [chart],
        f"Dense attention in the drive is {dense_ratio:.2f} times as fast as FlexGen at batch 64 (paper: 6.85). That "
        "says nothing about the model: FlexGen's rate and the share of K and V in this step are inputs. With the "
        "paper's statement that pages keep half of the sparsity, "
        f"SparF is {sparse_ratio:.2f} times as fast as dense at batch 256 (paper: 2.08), and {best:.1f} times as fast "
        "as FlexGen's best (paper: 11.1). Our drive, which executes SparF, "
        f"takes {ours:.2f} times as long as with exact attention: with 1.5K tokens a head has few pages, and "
        "nearly all of "
        f"them hold something that was chosen. FlexGen's prefill fits up to batch {flexgen_batch()}, as the "
        "paper says.",
        "DeepSpeed at batch 16 is an input (INST-08).",
    )


def _figure_13() -> Figure:
    counts = (1, 2)
    chart = Chart(
        "batch 64",
        "drives",
        "throughput, one drive = 1",
        [str(count) for count in counts],
        [
            Series("FlexGen", [flexgen_step(64, c).throughput / flexgen_step(64).throughput for c in counts]),
            Series("dense", [dense(64, c).throughput / dense(64).throughput for c in counts]),
            Series(
                "SparF 1/8, the paper's pages",
                [dense(64, c, paper_pages()).throughput / dense(64, 1, paper_pages()).throughput for c in counts],
            ),
        ],
        [Published(1, "INST-13", "FlexGen gains nothing", "2", "FlexGen")],
        Style.bars,
    )
    return Figure(
        "instinfer-13",
        "13",
        "A second drive",
        [chart],
        "That FlexGen gains nothing from a second SSD is an input (INST-13). A second drive that attends halves "
        "attention; the software's time stays.",
    )


def _breakdown(key: str, number: str, count: int, claim: Published) -> Figure:
    batches = [str(batch) for batch in BATCHES[2:]]
    steps = [dense(batch, count) for batch in BATCHES[2:]]
    times = [Series(kind, [step.parts.get(kind, 0.0) for step in steps]) for kind in ("attention", "GPU", "software")]
    saved = [100 * (1 - step.parts["attention"] / flexgen_step(step.work.batch).parts["K and V"]) for step in steps]
    plural = "s" if count > 1 else ""
    return Figure(
        key,
        number,
        f"Parts of a decode step, {count} drive{plural}, dense",
        [
            Chart("time", "batch", "s for a step", batches, times, style=Style.stack),
            Chart(
                "access to K and V saved over FlexGen",
                "batch",
                "time saved, %",
                batches,
                [Series("ours", saved)],
                [claim],
                Style.bars,
            ),
        ],
        f"Access to K and V takes {saved[2]:.1f} % less time than FlexGen's at batch 64; the paper says "
        f"{claim.value:g} %. FlexGen's rate is an input from the paper's value for one drive; the drive's time is our "
        "drive library's.",
        "Which of the figures 14 and 15 shows which number of drives is our reading of the text.",
    )


def _figure_16() -> Figure:
    tokens = (1024, 2048, 4096, 8192)
    rows = {
        "exact": [1.0 for _ in tokens],
        "SparF 1/8, K of similar neighbours": [executed_share(8, count) for count in tokens],
    }
    chart = Chart(
        "device time of attention, InstCSD preset",
        "tokens",
        "exact = 1",
        tokens,
        [Series(name, values) for name, values in rows.items()],
        log="x",
    )
    return Figure(
        "instinfer-16",
        "16",
        "Device time of SparF in our drive",
        [chart],
        "The paper's shares of the engine's phases are not in the text. Ours: the drive library executes SparF with "
        "made-up K; it pays from a few thousand tokens on.",
    )


def _figure_17() -> Figure:
    ratios = (2, 4, 8, 16, 32)
    pages = {ratio: 1.5 * min(1.0, 2 / ratio) for ratio in ratios}
    series = [
        Series(
            f"{count} drive{'s' if count > 1 else ''}, the paper's pages",
            [dense(256, count, pages[ratio]).throughput / dense(256, count).throughput for ratio in ratios],
        )
        for count in (1, 2)
    ]
    executed = [dense(256, 1, executed_share(ratio)).throughput / dense(256).throughput for ratio in ratios]
    series.append(Series("1 drive, executed by our drive", executed))
    chart = Chart(
        "batch 256",
        "compression ratio 1/n",
        "throughput, dense = 1",
        ratios,
        series,
        [Published(2.08, "INST-09", "SparF 1/8 over dense, one drive", 8)],
        log="x",
    )
    return Figure(
        "instinfer-17",
        "17",
        "Throughput by SparF's compression ratio",
        [chart],
        "Throughput rises with the ratio, as the paper says: as our drive executes SparF, and by construction with the "
        "paper's pages. With those we get "
        f"{series[0].values[2]:.2f} at 1/8 (paper: 2.08).",
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
            _breakdown("instinfer-14", "14", 1, Published(88.1, "INST-16", "one drive")),
            _breakdown("instinfer-15", "15", 2, Published(94.0, "INST-14", "two drives")),
            _figure_16(),
            _figure_17(),
        ],
        [("6", "what it shows is in none of the claims that we have")],
    )
