"""All claims with our values, as a page (docs/results/claims.md) and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvdrive.study.attention_store import claims as attention_store
from kvdrive.study.claim import AGREEMENT, NEAR, TOLERANCE, Claim, Entry, Relation, Verdict, evaluate
from kvdrive.study.hilos import claims as hilos
from kvdrive.study.instinfer import claims as instinfer
from kvdrive.study.llm_in_a_flash import claims as flash
from kvdrive.study.paged_attention import claims as paged

PAPERS: dict[str, tuple[Claim, ...]] = {
    "InstInfer": instinfer.CLAIMS,
    "HILOS": hilos.CLAIMS,
    "AttentionStore": attention_store.CLAIMS,
    "PagedAttention on SSD": paged.CLAIMS,
    "LLM in a flash": flash.CLAIMS,
}
HEAD = f"""\
# Claims

The five papers' claims, each beside our own value, written by `kvdrive ledger --write docs/results/claims.md`. With
`--check` it computes the values again, and fails if the page is stale or a difference is not explained.

Two verdicts are agreement:

- **predicted**: our model computes it, without the claim's own number.
- **measured**: the command beside it measures it here, on our own drive, kernel or runtime.

The others are not:

- **arithmetic**: it follows from sizes or from other numbers of the papers, or holds by construction.
- **input**: the claim's own number goes in, so that our value says nothing about the model.
- **differs**: the error is larger than {100 * TOLERANCE:g} %, and the text says why. This comes before all others.
- **open**: a value is possible, and there is none yet. **no value**: needs hardware or data that we lack.

One tolerance holds for all claims: {100 * TOLERANCE:g} %, which is what rounding to two digits, the papers' usual
precision, hides at most (1.0 may be 0.95 or 1.05). The error of a share or a saving in per cent is relative to what it
leaves of 100 %, if that is less: 94 and 97 % saved leave 6 and 3 %, which are not equal. A claim over a range is
evaluated over the range: the error is that of the worst setting or end. **from** names the claims whose stated numbers
our value was computed from, as noticed while it was computed; a claim that is named in its own row is an input.
**within {100 * NEAR:g} %** counts, of all claims that a model computes without their own number, those whose error is
at most {100 * NEAR:g} %, whatever their verdict.

"""


def entries() -> dict[str, list[Entry]]:
    """Every claim, by paper."""
    return {paper: [evaluate(claim) for claim in claims] for paper, claims in PAPERS.items()}


def totals(rows: Sequence[Entry]) -> str:
    """One line: how many claims agree, and how."""
    counts = Counter(entry.verdict for entry in rows)
    agree = " and ".join(f"{counts[verdict]} {verdict}" for verdict in AGREEMENT)
    others = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if verdict not in AGREEMENT)
    return f"{sum(counts[verdict] for verdict in AGREEMENT)} of {len(rows)} claims agree ({agree}); {others}"


def page(found: dict[str, list[Entry]]) -> str:
    """The page as Markdown."""
    lines = [HEAD + f"**{totals([entry for rows in found.values() for entry in rows])}.**", ""]
    lines += [f"| paper | {' | '.join(Verdict)} | within {100 * NEAR:g} % |", "|---" * (len(Verdict) + 2) + "|"]
    everything = {**found, "all": [entry for rows in found.values() for entry in rows]}
    for paper, rows in everything.items():
        counts = Counter(entry.verdict for entry in rows)
        near, alone = (sum(flags) for flags in ((e.near for e in rows), (e.independent for e in rows)))
        verdicts = " | ".join(str(counts[verdict]) for verdict in Verdict)
        lines.append(f"| {paper} | {verdicts} | {near} of {alone} |")
    for paper, rows in found.items():
        lines += [
            "",
            f"## {paper}",
            "",
            "| id | where | what | paper | ours | error | kind | from | verdict |",
            "|---" * 9 + "|",
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
            "kind": entry.claim.kind.value,
            "from": sorted(entry.reads),
            "verdict": entry.verdict.value,
            "note": _note(entry.claim),
            "command": entry.claim.command,
        }
        for paper, rows in found.items()
        for entry in rows
    ]


def _note(claim: Claim) -> str:
    return "; ".join(text for text in (claim.note, claim.differs, claim.missing) if text)


def _row(entry: Entry) -> str:
    claim, note = entry.claim, _note(entry.claim)
    what = claim.says + (f". *{note}*" if note else "")
    sign = "" if claim.relation is Relation.equal else f"{claim.relation} "
    error = "" if entry.error is None else f"{100 * entry.error:.2g} %"
    kind = claim.kind.value + (f" (`{claim.command}`)" if claim.command != "kvdrive ledger" else "")
    stated, ours = sign + _numbers(claim.value, claim.unit), _numbers(entry.values, "")
    cells = (claim.key, claim.where, what, stated, ours, error, kind, ", ".join(sorted(entry.reads)), entry.verdict)
    return f"| {' | '.join(cells)} |"


def _numbers(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    text = ", ".join(f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.1f}".removesuffix(".0") for value in values)
    return f"{text} {unit}".rstrip()
