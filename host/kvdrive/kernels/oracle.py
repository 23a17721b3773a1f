"""Kernels on arrays through the golden model and the float64 reference.

The one place of the host that reads `sim/golden`: `kvdrive kernel` compares engines with the oracle.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from kvdrive import abi
from kvdrive.kernels.native import Arrays, scale_bits
from kvdrive.tree import use_tools

use_tools()
import golden  # noqa: E402
from golden import float64 as reference  # noqa: E402


def _fields(result: Any) -> Arrays:
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}


def _packed(mask: Any) -> Any:
    return None if mask is None else np.packbits(mask, bitorder="little")


class GoldenKernels:
    """The bit-exact oracle."""

    def argtopk(self, a: Arrays, mode: str) -> Arrays:
        magnitude = a["keys"].dtype in (np.float16, np.uint16)
        key_type = golden.abi.KeyType.MAGNITUDE16 if magnitude else golden.abi.KeyType.BINARY32
        return _fields(golden.argtopk(a["keys"], int(a["k_top"]), key_type))

    def page_filter(self, a: Arrays, mode: str) -> Arrays:
        sizes = (int(a["rows"]), int(a["row_bytes"]), int(a["page_bytes"]))
        return _fields(golden.page_filter(a["pages"], a["bitmap"], *sizes))

    def gemv(self, a: Arrays, mode: str) -> Arrays:
        if mode == "accumulate":
            return _fields(golden.gemv_accumulate(a["p"], a["v"]))
        if mode == "rows":
            result = golden.gemv_rows(a["q"], a["k"])
        else:
            result = golden.gemv_columns(a["q"], golden.block_columns(a["k"]), len(a["k"]))
        return {"status": result.status, "dots": result.dots.view(np.float32)}

    def softmax(self, a: Arrays, mode: str) -> Arrays:
        return _fields(golden.softmax(a["scores"], _packed(a.get("valid")), a.get("tail_scores")))

    def ffn(self, x: Any, rows: Any, activation: int, activations: Any = None) -> Any:
        """y of neurons of a feed-forward part, binary32 patterns [tokens, hidden]; arguments as `golden.ffn`."""
        return golden.ffn(x, rows, golden.Activation(activation), activations).y

    def attention(self, a: Arrays, mode: str) -> Arrays:
        options: Arrays = {
            "scale_log2e": scale_bits(a.get("scale"), a["q"].shape[1]),
            "valid": _packed(a.get("valid")),
            "inline_scores": a.get("inline_scores"),
            "inline_v": a.get("inline_v"),
        }
        if mode == "sparf":
            limits: Arrays = {"r": int(a["r"]), "k_top": int(a["k_top"]), "local": int(a["l"])}
            result = _fields(golden.sparf(a["q"], a["k"], a["v"], **limits, **options))
            return result | {"alpha": result["alpha"].view(np.float32)}
        if mode == "groups":  # `all_k`: K of the head's first append, which decides the exponent
            exponent = golden.index_exponent(a["all_k"])
            limits = {"unit": int(a["unit"]), "k_top": int(a["k_top"]), "exponent": exponent}
            result = _fields(golden.groups(a["q"], a["k"], a["v"], **limits, **options))
            return result | {"alpha": result["left"].astype(np.float32)}
        return _fields(golden.attention(a["q"], a["k"], a["v"], partial=mode == "partial", **options))


class Float64Kernels:
    """Plain float64: shows how far the exact engines are from real arithmetic. Fixed-point outputs are in real units
    of the same scale as the exact engine's integers (scores and p are multiplied by their LSB's inverse)."""

    def argtopk(self, a: Arrays, mode: str) -> Arrays:
        keys = a["keys"]
        values = np.abs(keys.view(np.float16)) if keys.itemsize == 2 else keys.view(np.float32)
        return {"status": 0, "indices": reference.argtopk(values, int(a["k_top"])).astype(np.uint32)}

    def page_filter(self, a: Arrays, mode: str) -> Arrays:
        wanted = np.unpackbits(a["bitmap"], bitorder="little")[: int(a["rows"])].astype(bool)
        rows, needed = reference.page_filter(a["pages"], wanted, int(a["row_bytes"]), int(a["page_bytes"]))
        return {"status": 0, "rows": rows, "rows_kept": int(wanted.sum()), "page_needed": needed}

    def gemv(self, a: Arrays, mode: str) -> Arrays:
        if mode == "accumulate":
            return {"status": 0, "acc": reference.gemv_accumulate(a["p"] * 2.0**-31, a["v"])}
        return {"status": 0, "dots": reference.gemv_rows(a["q"], a["k"])}

    def softmax(self, a: Arrays, mode: str) -> Arrays:
        dense, tail = a["scores"], a.get("tail_scores", np.zeros(0, np.int32))
        mask = np.concatenate([a.get("valid", np.ones(len(dense), bool)), np.ones(len(tail), bool)])
        x = np.concatenate([dense, tail]) / 2.0**abi.SCORE_FRACTION_BITS
        maximum = int(np.ceil(x[mask].max()))
        p = np.where(mask, np.exp2(x - maximum), 0.0) * 2.0**abi.P_FRACTION_BITS
        return {"status": 0, "p": p, "max": maximum, "sum": p.sum()}

    def attention(self, a: Arrays, mode: str) -> Arrays:
        tail = a.get("inline_scores")
        options: Arrays = {
            "scale": a.get("scale"),
            "mask": a.get("valid"),
            "inline_scores": None if tail is None else tail * (2.0**-abi.SCORE_FRACTION_BITS * math.log(2)),
            "inline_v": a.get("inline_v"),
        }
        if mode == "sparf":
            limits: Arrays = {"r": int(a["r"]), "k_top": int(a["k_top"]), "local": int(a["l"])}
            result = reference.sparf(a["q"], a["k"], a["v"], **limits, **options)
            return {"status": 0, "out": result.out, "alpha": result.alpha}
        return {"status": 0, "out": reference.attention(a["q"], a["k"], a["v"], **options)}
