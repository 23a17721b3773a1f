"""Claims about PagedAttention with a tier on SSD (vLLM with GPUDirect Storage)."""

from __future__ import annotations

from itertools import pairwise

from kvdrive.study.claim import Claim, Kind
from kvdrive.study.paged_attention.figures import full_memory

_VLLM = "needs vLLM with a GPU"


def _rising() -> tuple[float]:
    """True if the hit rate grows with each size of the SSD."""
    rates = full_memory()
    return (float(all(a < b for a, b in pairwise(rates))),)


CLAIMS = (
    Claim(
        "SPA-01", "3.2, figures 4 to 6", "tiers cost nothing where memory is ample", kind=Kind.hardware, missing=_VLLM
    ),
    Claim(
        "SPA-02",
        "3.3, figure 9",
        "hits of the SSD and of the CPU tier with little memory",
        (6, 0),
        "%",
        Kind.hardware,
        missing="a workload of first prompts that is not published",
    ),
    Claim(
        "SPA-03",
        "3.3, figure 7",
        "the SSD tier is as fast as the GPU alone and faster than the CPU tier",
        kind=Kind.hardware,
        missing=_VLLM,
    ),
    Claim(
        "SPA-04",
        "3.4, figures 11 and 12",
        "hits of the SSD tier go on rising when the CPU tier is full",
        kind=Kind.modelled,
        value=(1,),
        ours=_rising,
        command="kvdrive replay sharegpt",
        note="in a replay of generated conversations; rates of the paper's prompts are near 0",
    ),
    Claim(
        "SPA-05",
        "3.5, figures 13 and 14",
        "tiers of one size have one hit rate, SSD slightly faster",
        kind=Kind.hardware,
        missing="a GPU with direct storage; on the paper's machine both share one memory",
    ),
    Claim(
        "SPA-07",
        "1.4",
        "prices of memory in GPUs, hosts and SSDs",
        kind=Kind.hardware,
        missing="prices that other vendors ask; no model here uses them",
    ),
)
