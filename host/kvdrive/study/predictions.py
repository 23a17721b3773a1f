"""What the models say of settings that no claim at hand states, with the range that their inputs leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvdrive.perf import hardware
from kvdrive.perf.shapes import OPT_13B, OPT_30B, OPT_66B
from kvdrive.study.hilos import figures as hilos
from kvdrive.study.hilos.inputs import OPTS
from kvdrive.study.hilos.machine import BATCH, CLUSTER, CLUSTER_GPUS, HILOS, SHARES
from kvdrive.study.instinfer import figures as instinfer
from kvdrive.study.instinfer.machine import INSTINFER
from kvdrive.study.model import costs, decode
from kvdrive.study.model.decode import Attending, Machine, Step, Work

SPREAD = 0.15  # of device time and of the GPU's use, what our validation against this machine allows


@dataclass(frozen=True)
class Prediction:
    """`low` to `high` in `unit`; `how`: what the two ends are."""

    system: str
    setting: str
    says: str
    low: float
    high: float
    unit: str
    how: str


def _range(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


_NOMINAL = "our drive's device time, and the nominal rate; +-15 % of the GPU's use"


def _steps(machine: Machine, work: Work, how: Attending) -> list[Step]:
    """With the library's device time and the nominal rate; a GPU that is used more or less."""
    nominal = replace(machine, drive=replace(machine.drive, preset=""))
    uses = (1 - SPREAD, 1, 1 + SPREAD)
    return [decode.attended(replace(of, use=of.use.times(use)), work, how) for of in (machine, nominal) for use in uses]


def _attended(machine: Machine, work: Work, how: Attending) -> list[float]:
    """Tokens per second of `_steps`."""
    return [step.throughput for step in _steps(machine, work, how)]


def _drives() -> Iterator[Prediction]:
    for machine, model, tokens, batch in ((INSTINFER, OPT_13B, 1536, 256), (HILOS, OPT_66B, 32768, 16)):
        one = _attended(machine, Work(model, batch, tokens), Attending(1))
        for count in (2, 4, 8, 12, 16, 20):
            gains = [
                value / base
                for value, base in zip(
                    _attended(machine, Work(model, batch, tokens), Attending(count)), one, strict=True
                )
            ]
            yield Prediction(
                machine.name,
                f"{model.name}, {tokens} tokens, batch {batch}",
                f"{count} drives over one, heads split, dense",
                *_range(gains),
                "times",
                _NOMINAL,
            )


def _splits() -> Iterator[Prediction]:
    """Heads or sequences split over the drives: a drive with few heads in a command fills its channels less."""
    model, tokens, batch, count = OPT_66B, 32768, 16, 16
    from kvdrive.study.model.drives import attention_seconds

    heads = model.kv_heads / count
    by_head = batch * attention_seconds(hardware.SMARTSSD, heads, tokens, model.head_dim, 1)
    by_sequence = batch / count * attention_seconds(hardware.SMARTSSD, model.kv_heads, tokens, model.head_dim, 1)
    yield Prediction(
        "HILOS",
        f"{model.name}, {tokens} tokens, batch {batch}, {count} drives",
        "attention split by heads over split by sequences",
        *_range([1.0, by_head / by_sequence]),
        "times the time",
        "drives that prefetch the next command; drives that do not (ours)",
    )


def _contexts() -> Iterator[Prediction]:
    for tokens in hilos.CONTEXTS:
        for model in (OPT_30B, OPT_66B):
            theirs = hilos.flex_ssd(model, tokens).throughput
            mine = [
                value / theirs
                for alpha in SHARES[:-1]
                for value in _attended(HILOS, Work(model, BATCH, tokens), Attending(16, alpha))
            ]
            yield Prediction(
                "HILOS",
                f"{model.name}, {tokens // 1024}K tokens, batch 16, 16 drives",
                "throughput over FlexGen with 4 SSDs",
                *_range(mine),
                "times",
                "shares of X-cache from 0 to 0.5; " + _NOMINAL,
            )


def _ablations() -> Iterator[Prediction]:
    steps = {
        "X-cache at its best over none": ([0.25, 0.5], [0.0], 16),
        "delayed writes over writing each token at once": ([0.0], [0.0], 0),
    }
    for says, (shares, without, interval) in steps.items():
        for tokens in (8192, 32768, 131072):
            work = Work(OPT_30B, 16, tokens)
            gains = [
                a / b
                for share in shares
                for bare in without
                for a, b in zip(
                    _attended(HILOS, work, Attending(16, share)),
                    _attended(HILOS, work, Attending(16, bare, interval)),
                    strict=True,
                )
            ]
            setting = f"opt-30b, {tokens // 1024}K tokens, batch 16, 16 drives"
            yield Prediction("HILOS", setting, says, *_range(gains), "times", _NOMINAL)


def _gpus() -> Iterator[Prediction]:
    links = {
        **{f"{gpu.name}, PCIe 4.0": (gpu, hardware.PCIE4_X16_EFFECTIVE) for gpu in (hardware.A6000, hardware.RTX_4090)},
        **{f"A100 40 GB, {name}": (hardware.A100_40, link) for name, link in hardware.LINKS.items()},
        "H100 80 GB, PCIe 5.0 x16": (hardware.H100_80, hardware.PCIE5_X16_EFFECTIVE),
    }
    base = _attended(HILOS, Work(OPT_66B, 16, 32768), Attending(16, 0.5))
    for name, (gpu, link) in links.items():
        machine = replace(HILOS, gpu=gpu, link=link)
        values = [
            a / b for a, b in zip(_attended(machine, Work(OPT_66B, 16, 32768), Attending(16, 0.5)), base, strict=True)
        ]
        yield Prediction(
            "HILOS",
            f"opt-66b, 32K tokens, batch 16, 16 drives, half as X, {name}",
            "throughput over the A100 with PCIe 4.0",
            *_range(values),
            "times",
            _NOMINAL,
        )


def _nodes() -> Iterator[Prediction]:
    """vLLM on hosts of 4 GPUs with 100 Gbit/s between them, beside 16 drives and one GPU: decode steps alone."""
    for hosts in (2, 4):
        gpus = hosts * CLUSTER_GPUS // 2
        for tokens in (8192, 32768, 131072):
            batch = min(BATCH, decode.gpu_batch(CLUSTER, OPT_66B, tokens, gpus))
            if not batch:
                continue
            work = Work(OPT_66B, batch, tokens)
            rates = [
                decode.in_gpus(replace(CLUSTER, use=CLUSTER.use.times(use)), work, gpus).throughput
                for use in (1 - SPREAD, 1, 1 + SPREAD)
            ]
            mine = hilos.ours(OPT_66B, tokens, 16).throughput
            yield Prediction(
                "vLLM, several hosts",
                f"{OPT_66B.name}, {tokens // 1024}K tokens, {hosts} x 4 {CLUSTER.gpu.name}, batch {batch}",
                "throughput over one A100 with 16 SmartSSDs at batch 16",
                *_range([rate / mine for rate in rates]),
                "times",
                "batch that fits in the GPUs; +-15 % of the GPU's use",
            )


def _shares_of_steps() -> Iterator[Prediction]:
    """How much of InstInfer's step is access to K and V."""
    for count in (1, 2, 4):
        for batch in (64, 128, 256):
            for name, sparse in (("dense", 1.0), ("SparF 1/8", instinfer.executed_share())):
                if count == 1 and sparse == 1.0:
                    continue  # inputs of the model follow from these
                steps = _steps(INSTINFER, Work(OPT_13B, batch, instinfer.TOKENS), Attending(count, sparse=sparse))
                yield Prediction(
                    "InstInfer",
                    f"opt-13b, 1.5K tokens, batch {batch}, {count} drive{'s' if count > 1 else ''}, {name}",
                    "access to K and V, share of a step",
                    *_range([100 * step.share("attention") for step in steps]),
                    "%",
                    _NOMINAL,
                )


def _economy() -> Iterator[Prediction]:
    """Money, energy and wear of a token beside FlexGen with 4 SSDs, whose energy and price our model states, too."""
    for model in OPTS:
        theirs = hilos.flex_ssd(model, 32768)
        bought, burnt = (costs.usd_per_million_tokens(HILOS, theirs, 0), costs.joules_per_token(HILOS, theirs, 0))
        for count in (4, 8, 16):
            steps = [
                step
                for alpha in SHARES[:-1]
                for step in _steps(HILOS, Work(model, BATCH, 32768), Attending(count, alpha))
            ]
            setting = f"{model.name}, 32K tokens, batch 16, {count} drives"
            how = "shares of X-cache from 0 to 0.5; " + _NOMINAL
            price = [bought / costs.usd_per_million_tokens(HILOS, step, count) for step in steps]
            energy = [100 * (1 - costs.joules_per_token(HILOS, step, count) / burnt) for step in steps]
            yield Prediction("HILOS", setting, "tokens per dollar over FlexGen", *_range(price), "times", how)
            yield Prediction("HILOS", setting, "energy of a token saved", *_range(energy), "%", how)


_SOURCES = (_drives, _splits, _contexts, _ablations, _shares_of_steps, _gpus, _nodes, _economy)


def predictions() -> list[Prediction]:
    """All predictions."""
    return [found for source in _SOURCES for found in source()]
