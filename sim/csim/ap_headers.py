"""Print the folder of the vendor's ap_int headers.

They are Apache-2.0 and come with the package `hls4ml`, of which nothing else is used and nothing is imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def ap_headers() -> Path:
    """Folder with ap_int.h: $KVDRIVE_AP_TYPES, else the package. Raises FileNotFoundError with the way out."""
    if folder := os.environ.get("KVDRIVE_AP_TYPES"):
        return Path(folder)
    spec = importlib.util.find_spec("hls4ml")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "templates/vivado/ap_types"
        if (folder / "ap_int.h").is_file():
            return folder
    raise FileNotFoundError(
        "the ap_int headers are missing: run `make setup`, or `pip install --no-deps hls4ml==1.3.0`"
    )


if __name__ == "__main__":
    try:
        print(ap_headers())
    except FileNotFoundError as error:
        sys.exit(str(error))
