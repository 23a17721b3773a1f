"""The benchmark of PagedAttention with a tier on SSD: GPU alone, a tier in memory, a tier on SSD, by replay."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.attention_store import simulation, traces
from kvdrive.study.attention_store.hardware import GB, Machine, Model
from kvdrive.study.attention_store.inputs import A100_USE
from kvdrive.study.figure import Chart, Figure, Paper, Series, Style
from kvdrive.study.stated import remembered

CONVERSATIONS = 120
# Llama-3.2-1B: 16 layers of 8 KV heads of 64 elements; its weights.
BYTES_PER_TOKEN = 2 * 16 * 8 * 64 * 2
WEIGHTS = 1.24e9
TIERS = (0.25, 0.5, 1.0, 2.0, 4.0)  # GB


@remembered
def replayed(memory: float, disk: float) -> dict[str, float]:
    """A replay with tiers of so many GB."""
    trace = traces.conversations(CONVERSATIONS, 4.0, 1)
    seconds = 2 * WEIGHTS / (hardware.A100_FLOPS.value * A100_USE.value)
    model = Model(BYTES_PER_TOKEN, seconds, decode=0.01)
    machine = Machine(int(memory * GB), int(disk * GB), slots=64)
    keep = bool(memory + disk)
    return simulation.replay(trace, model, machine, "lru", keep=keep).figures(machine)


def hit_rates() -> tuple[list[float], list[float]]:
    """Hit rates in percent by size of the tier: in memory alone, and on SSD behind 0.25 GB of memory."""
    memory = [100 * replayed(size, 0)["hit_rate"] for size in TIERS]
    return memory, [100 * replayed(TIERS[0], size)["hit_rate"] for size in TIERS]


def full_memory() -> list[float]:
    """Hit rates in percent behind 0.5 GB of memory, which is full: without an SSD, then by its size."""
    return [100 * replayed(TIERS[1], size)["hit_rate"] for size in (0.0, *TIERS)]


def paper() -> Paper:
    """The benchmark's hit rates."""
    memory, disk = hit_rates()
    rates = Chart(
        "Llama-3.2-1B, generated conversations",
        "GB of the tier",
        "hit rate, %",
        [f"{size:g}" for size in TIERS],
        [Series("tier in memory", memory), Series("0.25 GB in memory, the rest on SSD", disk)],
        style=Style.bars,
    )
    rising = Chart(
        "0.5 GB of memory, which is full",
        "GB of SSD",
        "hit rate, %",
        [f"{size:g}" for size in (0.0, *TIERS)],
        [Series("ours", full_memory())],
        style=Style.bars,
    )
    return Paper(
        "ssd-paged",
        "PagedAttention on SSD",
        [
            Figure(
                "ssd-paged-hits",
                "11 and 12",
                "Hits of the tiers",
                [rates, rising],
                "Hits go on rising with the SSD when memory is full, as the paper says (SPA-04). Its first prompts do "
                "not return, so that its own rates are near 0; ours are conversations of several turns.",
            )
        ],
        [
            ("4 to 9", "speeds of vLLM with a GPU"),
            ("13 and 14", "speeds on a machine whose GPU and host share one memory"),
        ],
    )
