#!/usr/bin/env python3
"""Replays AttentionStore's evaluation in all settings (a quarter of an hour) and records the results for the ledger."""

from __future__ import annotations

from pathlib import Path

from kvdrive.perf.stated import watched
from kvdrive.sessions.replay import attention_store

FILE = Path(attention_store.__file__).with_suffix(".json")


def main() -> None:
    results = {}
    with watched() as reads:
        for setting in attention_store.SETTINGS:
            results[setting] = attention_store.run(setting)
            print(f"{setting.name}: hits {results[setting].hits} of {results[setting].requests}", flush=True)
    FILE.write_text(attention_store.dump(results, reads))


if __name__ == "__main__":
    main()
