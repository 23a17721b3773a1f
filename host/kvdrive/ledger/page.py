"""All claims with our values, as a page (docs/ledger.md) and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvdrive.ledger import attention_store, hilos, instinfer, paged, weights
from kvdrive.ledger.claim import Claim, Entry, Relation, Verdict, evaluate

PAPERS: dict[str, tuple[Claim, ...]] = {
    "InstInfer": instinfer.CLAIMS,
    "HILOS": hilos.CLAIMS,
    "AttentionStore": attention_store.CLAIMS,
    "PagedAttention on SSD": paged.CLAIMS,
    "LLM in a flash": weights.CLAIMS,
}
HEAD = """\
# Ledger

The five papers' claims, each beside our own value, written by `kvdrive ledger --write docs/ledger.md`. With `--check`
instead of `--write` it computes the values again, and fails if the page is stale or an error is larger than it may be.

- **arithmetic**: follows from sizes. **modelled**: from sizes and published rates. **calibrated**: modelled, with
  another result of the same paper as an input, which the note names. **measured here**: by the command beside it.
- **agrees**: within the error bound of the claim (5 % unless the JSON output says more). **differs**: beyond it, and
  the note says why. **open**: a value is possible, and there is none yet. **no value**: needs hardware or data that we
  lack, or is an input.

"""


def entries() -> dict[str, list[Entry]]:
    """Every claim, by paper."""
    return {paper: [evaluate(claim) for claim in claims] for paper, claims in PAPERS.items()}


def page(found: dict[str, list[Entry]]) -> str:
    """The page as Markdown."""
    lines = [HEAD, "| paper | " + " | ".join(Verdict) + " |", "|---" * (len(Verdict) + 1) + "|"]
    for paper, rows in found.items():
        counts = Counter(entry.verdict for entry in rows)
        lines.append(f"| {paper} | " + " | ".join(str(counts[verdict]) for verdict in Verdict) + " |")
    for paper, rows in found.items():
        lines += [
            "",
            f"## {paper}",
            "",
            "| id | where | what | paper | ours | error | kind | verdict |",
            "|---" * 8 + "|",
        ]
        lines += [_row(entry) for entry in rows]
    return "\n".join(lines) + "\n"


def records(found: dict[str, list[Entry]]) -> list[dict[str, Any]]:
    """The entries for JSON."""
    return [
        {
            "id": entry.claim.key,
            "paper": paper,
            "place": entry.claim.where,
            "claim": entry.claim.says,
            "unit": entry.claim.unit,
            "value": entry.claim.value,
            "ours": entry.values,
            "error": entry.error,
            "bound": entry.claim.bound,
            "kind": entry.claim.kind.value,
            "verdict": entry.verdict.value,
            "note": entry.claim.note or entry.claim.missing,
            "command": entry.claim.command,
        }
        for paper, rows in found.items()
        for entry in rows
    ]


def _row(entry: Entry) -> str:
    claim = entry.claim
    what = claim.says + (f". *{claim.note or claim.missing}*" if claim.note or claim.missing else "")
    sign = "" if claim.relation is Relation.equal else f"{claim.relation} "
    error = "" if entry.error is None else f"{100 * entry.error:.2g} %"
    kind = claim.kind.value + (f" (`{claim.command}`)" if claim.command != "kvdrive ledger" else "")
    stated, ours = sign + _numbers(claim.value, claim.unit), _numbers(entry.values, "")
    return f"| {claim.key} | {claim.where} | {what} | {stated} | {ours} | {error} | {kind} | {entry.verdict} |"


def _numbers(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    text = ", ".join(f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.1f}".removesuffix(".0") for value in values)
    return f"{text} {unit}".rstrip()
