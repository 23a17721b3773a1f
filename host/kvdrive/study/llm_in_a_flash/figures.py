"""Figures of "LLM in a flash": what follows from bytes and rates, OPT-6.7B on an M1 Max unless said."""

from __future__ import annotations

from kvdrive.perf.shapes import HALF_BYTES, OPT_6_7B
from kvdrive.study.figure import Chart, Figure, Paper, Published, Series, Style
from kvdrive.study.inputs import Input
from kvdrive.study.llm_in_a_flash import inputs, stated
from kvdrive.study.llm_in_a_flash.stated import FLASH_PREDICTED, TOKENS

SEQUENTIAL, ROWS, BUNDLES = inputs.FLASH_SEQUENTIAL, inputs.FLASH_ROWS, inputs.FLASH_BUNDLES
ROW = OPT_6_7B.hidden * HALF_BYTES  # bytes of a neuron's row; a bundle has two


def rate(chunk: float) -> float:
    """Bytes per second of random reads of `chunk` bytes: a time for each, and the sequential rate for its bytes."""
    each = ROW / ROWS.value - ROW / SEQUENTIAL.value  # seconds that a read takes beside its bytes, several at a time
    return chunk / (each + chunk / SEQUENTIAL.value)


def milliseconds(size: float, at: Input) -> float:
    """To read `size` bytes at a rate."""
    return 1e3 * size / at.value


def new_bytes() -> float:
    """Bytes of the neurons that are new in a window."""
    return inputs.FLASH_NEW.value * OPT_6_7B.ffn_weights * HALF_BYTES


def token(machine: str) -> tuple[float, float]:
    """Milliseconds of a token: naive, and with everything. Only I/O is ours; the best case of bundles off the M1."""
    of = TOKENS[machine]
    bundles = BUNDLES if machine in ("CPU", "Metal M1") else SEQUENTIAL
    return (
        milliseconds(OPT_6_7B.weight_bytes, SEQUENTIAL) + of.naive_rest.value,
        milliseconds(new_bytes(), bundles) + of.rest.value,
    )


def _figure_2() -> Figure:
    chunks = tuple(1024 * n for n in (4, 8, 16, 32, 64, 128, 256, 1024))
    chart = Chart(
        "random reads, many at a time, M1 Max",
        "bytes of a read",
        "GB/s",
        chunks,
        [Series("one time for each read + sequential rate", [rate(chunk) / 1e9 for chunk in chunks])],
        [
            Published(stated.FLASH_ROWS.printed / 1e9, "LIF-03", "rows", ROW),
            Published(stated.FLASH_BUNDLES.printed / 1e9, "LIF-05", "bundles", 2 * ROW),
            Published(stated.FLASH_SEQUENTIAL.printed / 1e9, "LIF-01", "sequential"),
        ],
        log="x",
    )
    return Figure(
        "llm-in-a-flash-2",
        "2",
        "Rate of reads by their size",
        [chart],
        f"The rate of single rows and the sequential rate are inputs; they say {rate(2 * ROW) / 1e9:.2f} GB/s "
        "for bundles of "
        "twice the size, where the paper has 2.25.",
    )


def _table_2() -> Figure:
    sizes = (OPT_6_7B.weight_bytes, OPT_6_7B.weight_bytes / 2, FLASH_PREDICTED.value, new_bytes(), new_bytes())
    rates = (SEQUENTIAL, SEQUENTIAL, ROWS, ROWS, BUNDLES)
    names = ["naive", "half in memory", "predictor", "+ window", "+ bundles"]
    stated = (2196, 1090, 738, 164, 87)
    chart = Chart(
        "OPT-6.7B, M1 Max",
        "",
        "I/O for a token, ms",
        names,
        [Series("bytes / rate", [milliseconds(s, r) for s, r in zip(sizes, rates, strict=True)])],
        [
            Published(value, f"LIF-0{number}", name, name, "bytes / rate")
            for number, (name, value) in enumerate(zip(names, stated, strict=True), 1)
        ],
        Style.bars,
        "y",
    )
    return Figure(
        "llm-in-a-flash-table-2",
        "table 2",
        "Reads for a token",
        [chart],
        "Rates, the bytes of the predictor's rows and the share of new neurons (2.4 %) are the table's own, so that "
        "the times say nothing about a model: only the sizes of the weights are ours.",
    )


def _table_3() -> Figure:
    charts = [
        Chart(
            title,
            "",
            "a token, ms",
            list(TOKENS),
            [Series("I/O ours, the rest from the table", [token(machine)[at] for machine in TOKENS])],
            [
                Published(total.printed, total.claim, machine, machine, "I/O ours, the rest from the table")
                for machine, of in TOKENS.items()
                for total in [(of.naive, of.everything)[at]]
            ],
            Style.bars,
        )
        for at, title in enumerate(("naive", "with everything"))
    ]
    return Figure(
        "llm-in-a-flash-table-3",
        "table 3",
        "A token on four machines",
        charts,
        "I/O is ours, memory and computing are the table's. Off the M1 the paper gives no rate; we take the "
        "M1's sequential "
        "one, which is the best case of bundles. Totals that lie near the paper's follow from its own parts.",
    )


def paper() -> Paper:
    """The figures that follow from bytes and rates."""
    needs = "neurons of OPT-6.7B and Falcon 7B, which are not here; docs/guide/weights.md has those of small models"
    return Paper(
        "llm-in-a-flash",
        "LLM in a flash",
        [_figure_2(), _table_2(), _table_3()],
        [
            ("3", needs),
            ("4", needs),
            ("5", "a drawing of bundles, without numbers"),
            ("6", "a drawing of the memory manager, without numbers"),
            ("7", needs),
            ("8", needs),
        ],
    )
