"""The names of engines, precisions and other choices, one table each. `policies.registry` has those of policies."""

from __future__ import annotations

from typing import Literal

TARGETS = {
    "emulator": "a drive with modelled flash",
    "cpu": "the file's own disk, in real time",
}
ENGINES = {
    "fast": "vectorised",
    "hls": "the compiled kernels",
    "rtl": "the kernels' RTL, which takes long",
}
KERNEL_ENGINES = ("golden", *ENGINES, "xrt", "pynq", "float64")  # for single kernels: also on a card or Zynq board
KV_FORMATS = {
    "f16": "as they are",
    "int8": "in 8 bits, half of the bytes",
    "int4": "in 4 bits, 2/7 of the bytes",
    "fp8": "as e4m3 numbers of 8 bits, half of the bytes",
}  # how drives store K and V, in the order of nvme.wire.RowFormat
WEIGHTS_FORMATS = {
    "auto": "as stored, so that nothing is lost",
    "float32": "32 bits",
    "bfloat16": "16 bits",
    "float16": "16 bits",
    "int8": "matrices in 8 bits and a scale for each 32",
    "int4": "matrices in 4 bits and a scale for each 32",
}  # of experts and neurons on flash
DTYPES = ("float32", "bfloat16", "float16", "auto", "int8")  # of a model's weights; auto keeps the stored precision
PREFILL_CHUNK = 512  # tokens of a prompt that a server computes between two decode steps
OnFailure = Literal["raise", "recompute"]  # what the loss of a drive, or of data on it, leads to
OnOverflow = Literal["error", "trim"]  # what happens when a sequence has used up the model's positions
Index = Literal["auto", "memory", "flash"]  # where a drive has the index of policy groups
LookAhead = Literal["auto", "on", "off"]  # experts of the next layer are read before its router has chosen
Active = Literal["drive", "memory"]  # where running sequences are, and who attends to them


def explained(table: dict[str, str]) -> str:
    """A table for people: "name: meaning; name: meaning"."""
    return "; ".join(f"{name}: {meaning}" for name, meaning in table.items())
