# SPDX-License-Identifier: Apache-2.0
"""The pragma of docs/design/extend.md works."""

import re
import shutil
from pathlib import Path

from extend_page import ROOT, apply, python

NEST = """#include <hls_stream.h>
void top(hls::stream<int>& in, hls::stream<int>& out, int rows) {
  for (int i = 0; i < rows; i++) {
#pragma HLS LOOP_FLATTEN off
  inner:
    for (int j = 0; j < 8; j++) {
#pragma HLS PIPELINE II = 1
      out.write(in.read() + j);
    }
  }
}
"""


def test_the_pragma_of_the_page_keeps_a_nest(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sim/openhls", tmp_path / "sim/openhls", ignore=shutil.ignore_patterns("__pycache__"))
    apply("Add a pragma", tmp_path)
    (tmp_path / "nest.cpp").write_text(NEST)
    trips = {}
    for name, tree in (("before", ROOT), ("after", tmp_path)):
        out = str(tmp_path / name)
        done = python(tree, "-m", "openhls", "build", str(tmp_path / "nest.cpp"), "--top", "top", "--out", out)
        trips[name] = re.search(r" inner +1 +1 +\d+ +(\d+)? ", done.stdout).group(1)
        assert ("LOOP_FLATTEN off has no effect" in done.stderr) is (name == "before")
    assert trips == {"before": None, "after": "8"}
