# SPDX-License-Identifier: Apache-2.0
"""A drive with engine `xrt` under commands of many shapes, each compared with the golden model. Run by tests.

`drive_on_card.py FOLDER ENGINE SHAPES`, SHAPES: JSON list of [group, head_dim, heads, tokens]. Prints JSON: "failed"
(what went wrong, or ""), the engine's notices, reads of the file.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("sim", "tests/shared", "tests/drive")]

from conftest import DriveHost  # noqa: E402
from test_shapes import check_every_mode  # noqa: E402

folder, engine, shapes = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
report = {"failed": "", "notices": [], "reads": 0}
for number, (group, head_dim, heads, tokens) in enumerate(shapes):
    host = DriveHost(folder / f"drive-{number}.kv", engine, preset="plain", cache_bytes=0)
    try:
        check_every_mode(host, np.random.default_rng(number), group, head_dim, heads, tokens)
    except AssertionError as error:
        report["failed"] = str(error) or f"a command was refused: shape {number}"
    report["notices"] += host.drive.engine_notices()
    report["reads"] += host.drive.read_stats()["reads"]
    if report["failed"]:
        break
    del host
print(json.dumps(report), flush=True)
if report["failed"]:
    os._exit(0)  # the runtime waits for ever for a kernel that hangs
