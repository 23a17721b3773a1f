"""Replay AttentionStore's evaluation and record the results for the ledger: all settings, or those of some models.

python -m kvdrive.study.attention_store.record [MODEL ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from kvdrive.study.attention_store import evaluation
from kvdrive.study.stated import watched

FILE = Path(evaluation.__file__).with_suffix(".json")


def main(models: list[str]) -> None:
    with watched() as reads:
        results = {s: evaluation.result(s) for s in evaluation.SETTINGS if models and s.model not in models}
        for setting in evaluation.SETTINGS:
            if setting in results:
                continue
            results[setting] = evaluation.run(setting)
            print(f"{setting.name}: hits {results[setting].hits} of {results[setting].requests}", flush=True)
    FILE.write_text(evaluation.dump({setting: results[setting] for setting in evaluation.SETTINGS}, reads))


if __name__ == "__main__":
    main(sys.argv[1:])
