"""The names that users write where there is a choice, one table each. Policies have theirs in `policies.registry`."""

from __future__ import annotations

TARGETS = {
    "emulator": "a drive with modelled flash",
    "cpu": "the file's own disk, in real time",
}
ENGINES = {
    "fast": "vectorised",
    "hls": "the compiled kernels",
    "rtl": "the kernels' RTL, which takes long",
}
KERNEL_ENGINES = ("golden", *ENGINES, "float64")  # for single kernels: also the golden model and plain binary64
DTYPES = ("float32", "bfloat16", "float16", "auto")  # precisions of a model's weights; auto: as stored
ON_FAILURE = ("raise", "recompute")


def explained(table: dict[str, str]) -> str:
    """A table for people: "name: meaning; name: meaning"."""
    return "; ".join(f"{name}: {meaning}" for name, meaning in table.items())
