# SPDX-License-Identifier: Apache-2.0
"""Names of a process."""

from __future__ import annotations

import re

_RESERVED = """
always and assert assign automatic begin bit break buf byte case class const continue default disable do edge else
end endcase endfunction endmodule enum event expect export extern final for force fork function generate genvar
global if import initial inout input inside int integer interface join local localparam logic longint macromodule
matches module modport nand negedge new nor not null or output package packed parameter posedge primitive priority
process property protected pure rand real ref reg release repeat return sequence shortint signed static string
strong struct super supply0 supply1 table tagged task this time tri type typedef union unique unsigned use var void
wait while wire with within wor xnor xor
"""
_KEYWORDS = frozenset(_RESERVED.split())  # of SystemVerilog


class Names:
    """Names that are unique in a process and legal in SystemVerilog."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """`wish`, or it with a number."""
        name = re.sub(r"\W+", "_", re.sub(r"(\.(i|sroa|0|addr|lcssa))+(?=\.|\d|$)", "", wish)).strip("_") or "v"
        name = f"v{name}" if name[0].isdigit() or name in _KEYWORDS else name
        count = self._used.get(name)
        self._used[name] = 0 if count is None else count + 1
        return name if count is None else self.fresh(f"{name}_{count + 1}")
