"""The tables of docs/guide/gpu.md: from the results of `gpu.check` in results/gpu/*.json, and from the planner."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvdrive.perf.plan import plan
from kvdrive.perf.shapes import LLAMA_70B, MISTRAL_7B, OPT_66B
from kvdrive.perf.systems import SYSTEMS
from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE, RESULTS = ROOT / "docs/guide/gpu.md", ROOT / "results/gpu"
SYSTEM, TOKENS, BATCH, COUNTS = "h100-smartssd", 32768, 16, (1, 2, 4, 8)
PARTS = {  # of the check, beside tokens, the first token and steps
    "load": "K and V that are loaded to the GPU",
    "inputs": "X-cache, rebuilt on the GPU",
    "mini_batches": "mini-batches",
    "expected": "steps beside the plan",
    "codes": "K and V in 8 and 4 bits, encoded on the GPU",
    "direct": "kvikio",
    "blocks": "blocks of an engine on the GPU",
    "vllm": "vLLM",
}
NONE = "No figures exist yet: the check has not run on a machine with a GPU."


def texts() -> dict[Path, str]:
    """The page with all results."""
    files = sorted(RESULTS.glob("*.json"))
    return {PAGE: filled(PAGE, {"gpu": measured(files), "gpu-missing": missing(files), "gpu-plan": planned()})}


def missing(files: list[Path]) -> str:
    """What no run has measured."""
    found = [json.loads(file.read_text()) for file in files]
    names = [what for part, what in PARTS.items() if not any(_ended(one.get(part)) for one in found)]
    return f"No figures exist yet for: {', '.join(names)}." if names else "Every part of the check has figures."


def _ended(found: Any) -> bool:
    return isinstance(found, dict) and "error" not in found and found.get("available", True)


def planned() -> str:
    """Tokens a second and the part that takes longest, by GPUs and drives."""
    rows = [_row("model", "GPUs", *(f"{drives} drives" if drives > 1 else "1 drive" for drives in COUNTS))]
    rows.append(_row(*("---" for _ in range(2 + len(COUNTS)))))
    for model in (MISTRAL_7B, LLAMA_70B, OPT_66B):
        for gpus in COUNTS:
            cells = []
            for drives in COUNTS:
                found = plan(model, SYSTEMS[SYSTEM].of_gpus(gpus), TOKENS, BATCH, drives)
                longest = max(found.parts, key=lambda part: part.seconds)
                share = f", X {found.alpha:g}" if found.alpha else ""
                cells.append(f"{found.throughput:.3g} ({longest.name}: {longest.bound}{share})")
            rows.append(_row(model.name, gpus, *cells))
    return "\n".join(rows)


def measured(files: list[Path]) -> str:
    """Tables for each file; without files, that there are none."""
    return "\n\n".join("\n".join(_tables(file.stem, json.loads(file.read_text()))) for file in files) or NONE


def _tables(name: str, found: dict[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    gpu = machine.get("gpu", {"name": "no GPU, a dry run"})
    packages = machine["packages"]
    yield f"### {gpu['name']}, {machine['cores']} cores"
    yield ""
    yield f"File `{name}.json`; torch {packages['torch']}, transformers {packages['transformers']}."
    yield from _tokens(found.get("tokens", {}))
    yield from _first_token(found.get("first_token", {}))
    yield from _decode(found.get("decode", {}))
    yield from _expected(found.get("expected", {}))
    yield from _others(found)
    yield from _errors(found, "")


def _tokens(found: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "model",
        "precision",
        "tokens equal",
        "exact ties",
        "first choice of sdpa / ties within eager's distance / others",
        "logits: ours from sdpa",
        "eager from sdpa",
        "smallest lead",
    )
    for model, by_precision in found.items():
        for precision, one in by_precision.items():
            if "error" not in one:
                choices = " / ".join(map(str, one["choices"].values())) if "choices" in one else ""
                apart = [f"{one['logits'][key]:.2g}" for key in ("ours_from_sdpa", "eager_from_sdpa", "smallest_lead")]
                yield _row(model, precision, f"{one['identical']}/{one['total']}", one["ties"], choices, *apart)


def _first_token(found: dict[str, Any]) -> Iterator[str]:
    if "contenders" not in found:
        return
    yield from _head(
        f"first token behind {found['tokens']}", "s", "/ sdpa", "s until written", "GB out", "hidden", "GB in", "hidden"
    )
    for name, one in found["contenders"].items():
        if one.get("first_token_s"):
            written = f"{statistics.median(one['written_s']):.3f}" if one["written_s"] else ""
            first = f"{statistics.median(one['first_token_s']):.3f}"
            yield _row(name, first, one["of_sdpa"], written, *_moved(one["copies"], 1e9))


def _decode(found: dict[str, Any]) -> Iterator[str]:
    if "error" in found or not found:
        return
    yield from _head("decode step behind", "contender", "ms", "/ sdpa", "MB out", "hidden", "MB in", "hidden")
    for context, row in found.items():
        for name, one in row.items():
            if "ms" in one:
                ratio = f"{one['ms'] / row['sdpa']['ms']:.2f}" if "ms" in row["sdpa"] else ""
                yield _row(context, name, f"{one['ms']:.2f}", ratio, *_moved(one["copies"], 1e6))


def _expected(found: dict[str, Any]) -> Iterator[str]:
    if "steps" not in found:
        return
    yield from _head("decode step behind", "model, ms", "attention, ms", "expected, ms", "measured, ms", "/ expected")
    for context, one in found["steps"].items():
        beside = one.get("measured_ms", ""), one.get("measured_over_expected", "")
        yield _row(context, one["model_ms"], one["attention_ms"], one["expected_ms"], *beside)


def _others(found: dict[str, Any]) -> Iterator[str]:
    """A row for each other part that ended."""
    rows = [row for part, tell in _TELL.items() if _ended(found.get(part)) for row in tell(found[part])]
    if rows:
        yield from _head("path", "found")
        yield from (_row(*row) for row in rows)


def _tell_load(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    moved = one["copies"]["HtoD"]
    hidden = f"; {moved['hidden_bytes'] / moved['bytes']:.0%} of the copies hidden" if moved["bytes"] else ""
    same = "the logits of a sequence that never stopped" if one["same_logits"] else "OTHER LOGITS"
    yield f"K and V loaded, {one['tokens']} tokens", f"{one['seconds']} s, {one['gb_per_s']} GB/s{hidden}; {same}"


def _tell_inputs(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    chosen = one["chosen"]
    found = f"{one['identical']}/{one['total']} tokens equal, {one['statistics']['corrected']} numbers corrected"
    yield "X-cache, K and V rebuilt", f"{found}; share chosen {chosen['share']:g}: {chosen['reason']}"


def _tell_mini_batches(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    what = f"two mini-batches of {one['rows']} sequences of {one['context']} tokens"
    same = "the same logits" if one["same_logits"] else "OTHER LOGITS"
    yield what, f"{one['2_ms']} ms; {one['1_ms']} ms in one piece; {same}"


def _tell_identity(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    times = f"{one['current_us']['median']} us, {one['current_without_collector_us']['median']} without the collector"
    yield "a look at the model's identity", f"{one['objects']} objects: {times}"


def _tell_direct(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    rates = one["gb_per_s"]
    yield f"between a file and the device, by {one['how']}", f"write {rates['write']}, read {rates['read']} GB/s"


def _tell_codes(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for kind, found in one.items():
        same = "the host's bytes" if found["same_bytes"] and found["same_arrived"] else "OTHER BYTES"
        yield f"K and V in {kind}, encoded on the device", f"{found['gb_per_s']} GB/s of binary16; {same}"


def _tell_blocks(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for how, found in one.items():
        rates, same = found["gb_per_s"], "the same bytes" if found["same"] else "OTHER BYTES"
        yield f"blocks of an engine, {how}", f"store {rates['store']}, load {rates['load']} GB/s; {same}"


def _tell_vllm(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, found in one.items():
        if isinstance(found, dict) and "cached" in found:
            same = "the same answers" if found["same"] else "OTHER ANSWERS"
            yield f"vLLM, {name}", f"tokens found {found['cached']}; {same}"


_TELL: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, str]]]] = {
    "load": _tell_load,
    "inputs": _tell_inputs,
    "mini_batches": _tell_mini_batches,
    "identity": _tell_identity,
    "direct": _tell_direct,
    "codes": _tell_codes,
    "blocks": _tell_blocks,
    "vllm": _tell_vllm,
}


def _moved(copies: dict[str, Any], unit: float) -> Iterator[str]:
    for direction in ("DtoH", "HtoD"):
        one = copies[direction]
        yield f"{one['bytes'] / unit:.3g}"
        yield f"{one['hidden_bytes'] / one['bytes']:.0%}" if one["bytes"] else ""


def _errors(found: Any, name: str) -> Iterator[str]:
    """A paragraph for each part that failed."""
    if isinstance(found, dict):
        if "error" in found:
            yield ""
            yield f"`{name}` failed: {found['error']}"
        for key, value in found.items():
            yield from _errors(value, f"{name}/{key}".strip("/"))


def _head(*columns: str) -> Iterator[str]:
    yield ""
    yield _row(*columns)
    yield _row(*("---" for _ in columns))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
