"""Replay AttentionStore's evaluation in all settings (a quarter of an hour) and record the results for the ledger.

python -m kvdrive.study.attention_store.record
"""

from __future__ import annotations

from pathlib import Path

from kvdrive.study.attention_store import evaluation
from kvdrive.study.stated import watched

FILE = Path(evaluation.__file__).with_suffix(".json")


def main() -> None:
    results = {}
    with watched() as reads:
        for setting in evaluation.SETTINGS:
            results[setting] = evaluation.run(setting)
            print(f"{setting.name}: hits {results[setting].hits} of {results[setting].requests}", flush=True)
    FILE.write_text(evaluation.dump(results, reads))


if __name__ == "__main__":
    main()
