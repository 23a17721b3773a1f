"""Write docs/identity.md: what does not count, from `kvdrive.identity.harmless`, and what a check costs (`--measure`).

`--check` writes nothing; exit code 1 says that the lists are not current.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kvdrive.identity import harmless
from page_blocks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/identity.md"
TABLES = (
    ("field of a configuration, or of a part of it", harmless.CONFIG),
    ("attribute of a model or module", harmless.MODULE),
    ("attribute of a module, while it is zero", harmless.ZEROS),
    ("module whose forward hooks only look", harmless.HOOKS),
    ("argument of a call", harmless.ARGUMENTS),
    ("module whose text is not hashed, with the modules in it", harmless.CODE),
    ("file in the folder of a model that vLLM computes with", harmless.FILES),
)


def lists() -> str:
    """A table for each kind of harmless thing."""
    parts = []
    for what, table in TABLES:
        rows = [f"| `{name}` | {why} |" for name, why in sorted(table.items())]
        parts.append("\n".join([f"| {what} | why |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def measured(steps: int = 40) -> str:
    """What `is_current` takes, as a share of a decode step."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    import kvdrive

    torch.set_num_threads(1)
    torch.manual_seed(1)
    mini = AutoModelForCausalLM.from_pretrained(ROOT / "models/mini").eval()
    deep = AutoModelForCausalLM.from_config(LlamaConfig(**mini.config.to_dict() | {"num_hidden_layers": 100})).eval()
    found = []
    for model, name in ((mini, "models/mini"), (deep, "the same model with 100 layers")):
        ids = torch.randint(2, 300, (1, 200))
        with torch.no_grad(), kvdrive.attach(model, "cpu") as attached:
            cache = attached.cache()
            model(ids, past_key_values=cache)
            step = _fastest(lambda: model(ids[:, :1], past_key_values=cache), steps)  # noqa: B023
            check = _fastest(attached._identity.is_current, steps)
        tensors = len(list(model.parameters()))
        found.append(f"{check * 1e6:.0f} us, {check / step:.2%} of a decode step, for {name} ({tensors} parameters)")
    return " and ".join(found)


def _fastest(work, times: int) -> float:
    """Seconds of the fastest of several runs."""
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> int:
    """Exit code 1 when `--check` finds another page."""
    blocks = {"harmless": lists()}
    new = filled(PAGE, blocks)
    if "--measure" in sys.argv[1:]:
        head, _, tail = new.partition("<!-- cost -->")
        new = f"{head}<!-- cost -->{measured()}<!-- end -->{tail.partition('<!-- end -->')[2]}"
    if "--check" in sys.argv[1:]:
        old = PAGE.read_text()
        if old != new:
            print("docs/identity.md is not current: make identity-page")
        return int(old != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
