"""Claims of InstInfer (in-storage sparse attention, HPCA 2025). OPT-13B unless said."""

from __future__ import annotations

import tempfile

import numpy as np

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.nvme import commands
from kvdrive.nvme.completions import decode
from kvdrive.perf.shapes import OPT_13B, OPT_175B
from kvdrive.study.claim import Claim, Kind
from kvdrive.study.evaluated import evaluated
from kvdrive.study.instinfer import figures, stated


def _over_flexgen(batch: int, sparse: float = 1.0) -> float:
    """Throughput of one drive over FlexGen's."""
    return figures.dense(batch, sparse=sparse).throughput / figures.flexgen_step(batch).throughput


def _saved(drives: int) -> tuple[float]:
    """Percent of FlexGen's access to K and V that drives save."""
    return (100 * (1 - figures.dense(64, drives).parts["attention"] / figures.flexgen_step(64).parts["K and V"]),)


def _sparf_gain() -> tuple[float]:
    return (figures.sparf(256).throughput / figures.dense(256).throughput,)


def _best_over_flexgen() -> tuple[float]:
    """The best of SparF, over all batches, over FlexGen with its K and V on the SSD."""
    ours = max(figures.sparf(batch).throughput for batch in figures.BATCHES)
    return (ours / figures.flexgen_step(figures.SSD_BATCH).throughput,)


def _ranked() -> tuple[float]:
    """True if the perplexities of `kvdrive eval` rank the policies as the claim does."""
    exact, sparf, sparq, h2o, local = (
        evaluated("mini", 2048, policy, "1" if policy == "exact" else "1/8").perplexity
        for policy in ("exact", "sparf", "sparq", "h2o", "local")
    )
    long = [evaluated("smollm2", 8064, *which).perplexity for which in (("exact",), ("sparf", "1/8"), ("local", "1/8"))]
    as_good = sparf <= 1.05 * min(sparq, exact) and long[1] <= 1.05 * long[0]
    return (float(as_good and sparf < min(h2o, local) and long[1] < long[2]),)


def _sparse_space() -> tuple[float]:
    """Groups on a drive that also stores the second K, over those without it."""
    rows = np.ones((1, 4096, OPT_13B.head_dim), np.float16)
    groups = []
    with tempfile.TemporaryDirectory() as folder:
        for options in (0, abi.AppendOption.APPEND_SPARSE):
            drive = Drive(f"{folder}/{options:d}.kv", "fast", 1, 1 << 26)
            for kind in abi.KvKind:
                command = commands.kv_append(1, 0, 0, kind, 0, int(kind), rows, options)
                decode(*drive.submit(command.entry, command.data)).check(command.opcode)
            groups.append(drive.flash_stats()["groups_live"])
    return (groups[1] / groups[0],)


def _monotone() -> list[float]:
    """True if SparF as our drive executes it is the faster the less it reads, with one drive and with two."""
    gains = [
        [figures.dense(256, count, figures.executed_share(ratio)).throughput for ratio in (2, 4, 8, 16, 32)]
        for count in (1, 2)
    ]
    return [float(all(of == sorted(of) for of in gains))]


CLAIMS = (
    Claim(
        "INST-03",
        "III-A",
        "K and V of OPT-175B in the same setting",
        (2.63,),
        "TB",
        Kind.contradiction,
        lambda: (OPT_175B.kv_bytes(128, 2048) / 1e12,),
        differs="from the paper's formula for K and V; its number is twice that",
    ),
    Claim(
        "INST-04",
        "III-A, figure 4",
        "throughput that DeepSpeed loses from batch 16 to 32, by swapping",
        (97.01,),
        "%",
        Kind.modelled,
        lambda: (100 * (1 - 1 / stated.DEEPSPEED_FALL.value),),
        note="from the factor 32.6 of section VI-C: the paper's two places agree; the depth needs the swap's rate",
    ),
    Claim(
        "INST-05",
        "III-A, figure 5",
        "share of KV access in FlexGen's decode step from SSD",
        (98.94,),
        "%",
        Kind.modelled,
        ours=lambda: (100 * figures.flexgen_step(figures.SSD_BATCH).share("K and V"),),
        note="at batch 64; what FlexGen's software takes for a layer follows from it",
    ),
    Claim(
        "INST-06",
        "VI-C, figure 12",
        "largest batch of FlexGen in 48 GB of GPU memory",
        (64,),
        "sequences",
        Kind.modelled,
        ours=lambda: (figures.flexgen_batch(),),
        note="counted in powers of two, from the tensors that FlexGen's published code holds in its prefill",
    ),
    Claim(
        "INST-07",
        "VI-C, figure 12",
        "throughput of one drive, dense, over FlexGen, batch 64",
        (6.85,),
        "times",
        Kind.modelled,
        lambda: (_over_flexgen(64),),
        note="follows from INST-16 and the share of K and V in this step; our drive reaches 10.9 of 11.2 GB/s",
    ),
    Claim(
        "INST-08",
        "VI-C, figure 12",
        "dense, batch 256, over DeepSpeed from host memory, batch 16",
        (4.6,),
        "% more",
        Kind.input,
        missing="DeepSpeed's rate from host memory (10 GB/s) follows from it",
    ),
    Claim(
        "INST-09",
        "VI-C, figure 12",
        "SparF 1/8 over dense, one drive, batch 256",
        (2.08,),
        "times",
        Kind.modelled,
        _sparf_gain,
        note="with the pages that our drive reads, of made-up K of similar neighbours",
        differs="with 1.5K tokens nearly all pages of a head hold something that was chosen",
    ),
    Claim(
        "INST-10",
        "VI-C",
        "SparF over FlexGen, one drive, at most",
        (11.1,),
        "times",
        Kind.modelled,
        _best_over_flexgen,
        note="the best of batches up to 256 over FlexGen at batch 64, with the pages that our drive reads",
        differs="it follows from INST-09, where our drive gains nothing; the paper's own INST-07 times INST-09 is 14.2",
    ),
    Claim(
        "INST-13",
        "VI-C, figure 13",
        "FlexGen's throughput with two SSDs over one",
        (1,),
        "times",
        Kind.modelled,
        lambda: (figures.flexgen_step(64, 2).throughput / figures.flexgen_step(64).throughput,),
        note="an assumption of the model: the rate of its path through the file system stays",
    ),
    Claim(
        "INST-14",
        "Abstract",
        "KV transfer that two drives save",
        (94.0,),
        "%",
        Kind.modelled,
        lambda: _saved(2),
        note="the drives' times are the drive library's: they reach 10.9 of 11.2 GB/s",
    ),
    Claim(
        "INST-16",
        "VI-D",
        "KV access that one drive saves, dense",
        (88.1,),
        "%",
        Kind.modelled,
        ours=lambda: _saved(1),
        note="FlexGen's rate is from this claim at 11.2 GB/s; the drive's time is the drive library's",
    ),
    Claim(
        "INST-21",
        "VI-E, figure 17b",
        "throughput rises with SparF's ratio",
        (1,),
        "",
        Kind.modelled,
        _monotone,
        note="SparF as our drive executes it on made-up K of similar neighbours, ratios 1/2 to 1/32, 1 and 2 drives",
    ),
    Claim(
        "INST-22",
        "VI-B, figure 11",
        "SparF as good as SparQ, better than H2O and a window; hardly a loss up to 1/8",
        (1,),
        kind=Kind.measured,
        ours=_ranked,
        command="kvdrive eval",
        note="perplexities of mini and SmolLM2 at 1/8 in docs/results/quality.md; 'as good' and 'hardly' are 5 %",
    ),
    Claim(
        "INST-25",
        "IV-C",
        "pages keep about half of the sparsity: pages read at 1/8",
        (0.25,),
        "of all",
        Kind.measured,
        lambda: (evaluated("smollm2", 8064, "sparf", "1/8").bytes_read,),
        command="kvdrive eval",
        note="SmolLM2's K and V of 8,064 tokens",
        differs="chosen tokens lie scattered, so that most pages hold one of them",
    ),
    Claim(
        "INST-26",
        "II-B",
        "K stored twice: space over K and V",
        (1.5,),
        "times",
        ours=_sparse_space,
        note="groups counted by our drive, which stores K so",
    ),
    Claim(
        "INST-27",
        "II-B",
        "bytes that SparQ saves at 1/8",
        (87.5,),
        "%",
        ours=lambda: (100 * (1 - (1 / 8 + 2 / 8) / 2),),
        differs="K is read twice: 1/8 of its rows to choose, then K and V of 1/8 of the tokens",
    ),
    Claim(
        "INST-29",
        "V-B, table I",
        "resources of the engine on a Zynq 7045",
        kind=Kind.hardware,
        missing="the vendor's synthesis; docs/results/hardware.md has open estimates of our own engine",
    ),
    Claim(
        "INST-30",
        "V",
        "rate inside the modelled drive",
        (11.2,),
        "GB/s",
        Kind.input,
        missing="the preset `instcsd`",
    ),
    Claim(
        "INST-31",
        "Figure 16",
        "shares of the engine's phases",
        kind=Kind.hardware,
        missing="a figure without numbers",
    ),
)
