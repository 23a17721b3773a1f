"""The kernels by name: their inputs, outputs and modes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kernel:
    """One kernel as `kvdrive kernel` shows it. `inputs` and `outputs` map a key to its shape, dtype and meaning."""

    name: str
    summary: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    modes: tuple[str, ...] = ()
    optional: frozenset[str] = field(default_factory=frozenset)


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "argtopk",
            "indices of the k largest keys, lowest index wins ties",
            {
                "keys": "[n] float32, or float16 for magnitudes (sign ignored); n <= 131072",
                "k_top": "int, 1 to min(n, 16384)",
            },
            {"indices": "[k_top] uint32, ascending", "bitmap": "uint8, bit i of byte i >> 3, whole 64-byte words"},
        ),
        Kernel(
            "page_filter",
            "wanted rows of flash pages, packed without gaps",
            {
                "pages": "[pages * page_bytes] uint8",
                "bitmap": "[>= ceil(rows / 8)] uint8, bit i = row i wanted",
                "rows": "int, rows in the pages",
                "row_bytes": "int, multiple of 32, 32 to 512",
                "page_bytes": "int, 4096, 8192 or 16384",
            },
            {
                "rows": "[rows_kept * row_bytes] uint8",
                "rows_seen": "int",
                "rows_kept": "int",
                "page_needed": "[pages] uint8",
            },
        ),
        Kernel(
            "gemv",
            "exact dot products per token, or exact p.V",
            {
                "q": "[g, d] float16 (rows, columns)",
                "k": "[s, d] float16, token-major (columns: transposed in 32 x 32 blocks on the way)",
                "p": "[g, s] uint32, LSB 2^-31, at most 2^31, 20 significant bits (accumulate)",
                "v": "[s, d] float16 (accumulate)",
            },
            {
                "dots": "[g, s] float32 (rows, columns)",
                "acc": "[g, d, 2] int64, low and high word, LSB 2^-55 (accumulate)",
            },
            modes=("rows", "columns", "accumulate"),
            optional=frozenset({"q", "k", "p", "v"}),
        ),
        Kernel(
            "softmax",
            "base-2 probabilities of Q12.20 scores, with mask and host scores",
            {
                "scores": "[s] int32, Q12.20",
                "valid": "[s] bool, optional",
                "tail_scores": "[t] int32, optional",
            },
            {"p": "[s + t] uint32, LSB 2^-31", "max": "int", "sum": "int, LSB 2^-31"},
            optional=frozenset({"valid", "tail_scores"}),
        ),
        Kernel(
            "attention",
            "decode attention of one KV head for g query heads",
            {
                "q": "[g, d] float16; g in 1, 2, 4, 5, 8; d a multiple of 32 up to 256",
                "k": "[s, d] float16",
                "v": "[s, d] float16",
                "scale": "float, optional, default 1/sqrt(d)",
                "valid": "[s] bool, optional",
                "inline_scores": "[g, t] int32 (Q12.20, base 2), optional",
                "inline_v": "[t, d] float16, optional",
                "r": "int, embedding rows (sparf)",
                "k_top": "int, tokens (sparf)",
                "l": "int, last tokens that are always chosen (sparf)",
            },
            {
                "out": "[g, d] float16; partial: float32",
                "max": "[g] int32, base-2 maximum",
                "sum": "[g] uint64, LSB 2^-31",
                "rows": "[64] uint8 bitmap (sparf)",
                "bitmap": "uint8, chosen tokens (sparf)",
                "alpha": "[g] float32 (sparf)",
            },
            modes=("exact", "partial", "sparf"),
            optional=frozenset({"scale", "valid", "inline_scores", "inline_v", "r", "k_top", "l"}),
        ),
    )
}
