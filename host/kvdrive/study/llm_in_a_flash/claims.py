"""Claims of "LLM in a flash" (feed-forward weights on flash)."""

from __future__ import annotations

from kvdrive.perf.shapes import HALF_BYTES, OPT_6_7B
from kvdrive.study.claim import Claim, Kind
from kvdrive.study.llm_in_a_flash import stated
from kvdrive.study.llm_in_a_flash.figures import BUNDLES, ROWS, SEQUENTIAL, milliseconds, new_bytes, token

_NEURONS = "needs a benchmark of neurons on flash, which the runtime has (docs/guide/weights.md)"
_TRAINED = "trained models with ReLU of that size, and their predictors"


def _token(machine: str) -> tuple[float, float, float]:
    """I/O of ours, memory and computing of the paper: naive, with everything, speed-up."""
    naive, everything = token(machine)
    return naive, everything, naive / everything


def _stated_speedups() -> list[float]:
    """Those of table 3, on the CPU, with Metal (M2) and on the GPU."""
    tokens = (stated.TOKENS[name] for name in ("CPU", "Metal M2", "RTX 4090"))
    return [of.naive.value / of.everything.value for of in tokens]


def _in_memory() -> tuple[float]:
    """Percent of the model that stays in memory: predictor, embedding, attention, and the window's neurons."""
    model = OPT_6_7B
    embedding = model.vocabulary * model.hidden
    sizes = embedding + model.attention_weights + stated.WINDOW_NEURONS.value / 100 * model.ffn_weights
    return (stated.PREDICTOR_SHARE.value + 100 * HALF_BYTES * sizes / model.weight_bytes,)


CLAIMS = (
    Claim(
        "LIF-01",
        "Table 2",
        "all weights of OPT-6.7B, and the time to read them",
        (13.4, 2196),
        "GB, ms",
        ours=lambda: (OPT_6_7B.weight_bytes / 1e9, milliseconds(OPT_6_7B.weight_bytes, SEQUENTIAL)),
    ),
    Claim(
        "LIF-02",
        "Table 2",
        "half of them",
        (6.7, 1090),
        "GB, ms",
        ours=lambda: (OPT_6_7B.weight_bytes / 2e9, milliseconds(OPT_6_7B.weight_bytes / 2, SEQUENTIAL)),
    ),
    Claim(
        "LIF-03",
        "Table 2",
        "rows that a predictor chooses: 0.9 GB",
        (738,),
        "ms",
        Kind.modelled,
        lambda: (milliseconds(stated.FLASH_PREDICTED.value, ROWS),),
        note="from the table's bytes and bandwidth",
    ),
    Claim(
        "LIF-04",
        "Table 2",
        "new rows of a window of 4 tokens, and their time",
        (0.2, 164),
        "GB, ms",
        Kind.modelled,
        lambda: (new_bytes() / 1e9, milliseconds(new_bytes(), ROWS)),
        note="2.4 % of the neurons, at the table's bandwidth",
    ),
    Claim(
        "LIF-05",
        "Table 2",
        "the same in bundles",
        (87,),
        "ms",
        Kind.modelled,
        lambda: (milliseconds(new_bytes(), BUNDLES),),
        note="the new neurons of LIF-04 at the table's bandwidth",
        differs="2.4 % of the neurons are 0.206 GB, which the table rounds to 0.2",
    ),
    Claim(
        "LIF-06",
        "Table 3",
        "a token on the CPU: naive, with everything, speed-up",
        (3182, 669, 4.76),
        "ms, ms, times",
        Kind.modelled,
        lambda: _token("CPU"),
        note="memory and computing from the table, I/O from bytes",
    ),
    Claim(
        "LIF-07",
        "Table 3",
        "the same with Metal, M1",
        (2389, 565, 4.23),
        "ms, ms, times",
        Kind.modelled,
        lambda: _token("Metal M1"),
        note="memory and computing from the table, I/O from bytes",
    ),
    Claim(
        "LIF-08",
        "Table 3",
        "the same with Metal, M2",
        (2270, 305, 7.44),
        "ms, ms, times",
        Kind.modelled,
        ours=lambda: _token("Metal M2"),
        note="memory and computing from the table; I/O at the M1's sequential rate, the best case of bundles",
    ),
    Claim(
        "LIF-09",
        "Table 3",
        "the same on an RTX 4090",
        (2218, 84, 26.4),
        "ms, ms, times",
        Kind.modelled,
        ours=lambda: _token("RTX 4090"),
        note="memory and computing from the table; I/O at the M1's sequential rate, the best case of bundles",
        differs="I/O takes 33.8 ms so, where the table has 30",
    ),
    Claim(
        "LIF-10",
        "Table 3",
        "the same with speculative decoding",
        (2218, 60, 37),
        "ms, ms, times",
        Kind.hardware,
        missing="the bytes that a draft's tokens read together are not published",
    ),
    Claim(
        "LIF-14",
        "Table 3",
        "Llama-2-7B with FATReLU on the CPU",
        (3095, 994, 3.11),
        "ms, ms, times",
        Kind.hardware,
        missing="the bytes that are read, which are not published",
    ),
    Claim("LIF-15", "Table 5", "deviations over repetitions", kind=Kind.hardware, missing="the paper's machine"),
    Claim(
        "LIF-16",
        "Abstract",
        "speed-up on CPU, Metal and GPU",
        (4, 7, 20),
        "times",
        Kind.arithmetic,
        _stated_speedups,
        note="table 3's own numbers",
        differs="the abstract rounds down",
    ),
    Claim(
        "LIF-17",
        "3.1",
        "neurons that are zero in OPT-6.7B, Falcon-7B with ReLU, Llama-2 with FATReLU",
        (97, 95, 90),
        "%",
        Kind.hardware,
        missing=_TRAINED,
    ),
    Claim(
        "LIF-18",
        "3.1, figure 4a",
        "neurons used by several tokens: a concave curve",
        kind=Kind.measured,
        missing=_NEURONS,
    ),
    Claim(
        "LIF-19",
        "Table 1",
        "accuracy of OPT-6.7B with a predictor",
        (66.2, 30.6, 49.8),
        "%",
        Kind.hardware,
        missing="a model of that size",
    ),
    Claim(
        "LIF-20",
        "Appendix C.1",
        "neurons that the predictor misses, and takes in vain",
        (5, 7),
        "%",
        Kind.hardware,
        missing=_TRAINED,
    ),
    Claim(
        "LIF-21",
        "Appendix C.1",
        "memory with a window of 4 or 5 tokens",
        (52.1,),
        "% of the model",
        ours=_in_memory,
        note="embedding and attention from sizes; the predictor's share and the window's are the paper's",
    ),
    Claim(
        "LIF-23",
        "2.2",
        "sequential reads of an M1 Max, more than",
        (6.0,),
        "GiB/s",
        Kind.input,
        missing="the rate `FLASH_SEQUENTIAL`",
    ),
    Claim("LIF-24", "3.3", "rows that a deletion moves: as many as it deletes", kind=Kind.measured, missing=_NEURONS),
    Claim(
        "LIF-25",
        "3.2, appendix D",
        "bundles of neurons that fire together gain nothing",
        kind=Kind.measured,
        missing=_NEURONS,
    ),
    Claim("LIF-26", "5.2", "speculative decoding: speed-up", (1.4,), "times", Kind.hardware, missing=_TRAINED),
    Claim("LIF-27", "Figure 8", "reads are level after the first tokens", kind=Kind.measured, missing=_NEURONS),
    Claim(
        "LIF-28", "Figure 7", "a longer window needs more memory and reads less", kind=Kind.measured, missing=_NEURONS
    ),
    Claim(
        "LIF-29", "Table 6", "active neurons, binary16 and 4 bits", (3.30, 3.27), "%", Kind.hardware, missing=_TRAINED
    ),
)
