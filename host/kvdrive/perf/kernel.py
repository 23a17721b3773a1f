"""The rate of the attention kernels, as their RTL was simulated behind DDR4-2400 (manifests in bitstreams/)."""

from __future__ import annotations

import json

from kvdrive.tree import ROOT

GROUPS = (1, 4, 5)  # queries per KV head of the kernels for exact attention


def kernel_rate(group: int, hz: float | None = None) -> float:
    """Bytes of K and V per second of the smallest kernel that holds `group` queries, of the largest one if none does.

    `hz`: its clock; default: the manifest's.
    """
    built = next((size for size in GROUPS if size >= group), GROUPS[-1])
    manifest = json.loads((ROOT / f"bitstreams/attention_exact_g{built}.json").read_text())
    job = max((job for job in manifest["measured"] if job["memory"] == "ddr4"), key=lambda job: job["amount"])
    return float(job["amount"] / job["cycles"] * (manifest["clock_mhz"] * 1e6 if hz is None else hz))
