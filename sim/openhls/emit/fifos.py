# SPDX-License-Identifier: Apache-2.0
"""Which FIFOs are part of a process: its buffer of words on their way out can hold those that wait as well.

One memory instead of two, and a cycle less on the way.
"""

from __future__ import annotations

from openhls.ir import Direction, Life, Program, calls_of, fifos_of

OwnFifos = dict[tuple[str, str], int]  # depth, by process and stream


def own_fifos(program: Program) -> OwnFifos:
    """Depths of the FIFOs behind the streams that a process writes itself, over all its calls; the deepest counts."""
    depths: dict[tuple[str, str], list[int]] = {}
    others: set[tuple[str, str]] = set()
    for process in program.processes.values():
        # What is left in a buffer of its own would keep the process from ending.
        fifos = {fifo.name: fifo.depth for fifo in fifos_of(process.body) if fifo.life is Life.REGION}
        for call in calls_of(process.body):
            for stream in program.processes[call.process].streams:
                to = dict(call.streams)[stream.name]
                if to not in fifos:
                    others |= {(process.name, to), (call.process, stream.name)}
                elif stream.direction is Direction.WRITE:
                    depths.setdefault((call.process, stream.name), []).append(fifos[to])
    return {end: max(found) for end, found in depths.items() if end not in others}
