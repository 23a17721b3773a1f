"""Discrete events: tasks that wait for tasks, on resources that do one task at a time in the order of readiness."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Task:
    """`seconds` of work of the resource `on`; it starts when all tasks of `after` have ended. `bytes` go over `on`.

    `begin`, `end` and `held_by` are set by `run`; `held_by` is the task that ended last before this one could start.
    """

    part: str
    on: str
    seconds: float
    after: Sequence[Task] = ()
    bytes: float = 0.0
    begin: float = field(default=0.0, init=False)
    end: float = field(default=0.0, init=False)
    held_by: Task | None = field(default=None, init=False)


def run(tasks: Sequence[Task]) -> float:
    """Set when tasks begin and end. Returns the end of the last one. Raises ValueError if tasks wait for each other."""
    waits = {id(task): len(task.after) for task in tasks}
    followers: dict[int, list[Task]] = defaultdict(list)
    number = {id(task): at for at, task in enumerate(tasks)}
    for task in tasks:
        for before in task.after:
            followers[id(before)].append(task)
    ready = [(0.0, number[id(task)], task) for task in tasks if not task.after]
    heapq.heapify(ready)
    last: dict[str, Task] = {}
    done = 0
    while ready:
        at, _, task = heapq.heappop(ready)
        task.begin = at
        busy_with = last.get(task.on)
        if busy_with is not None and busy_with.end > at:
            task.begin, task.held_by = busy_with.end, busy_with
        task.end = task.begin + task.seconds
        last[task.on] = task
        done += 1
        for follower in followers[id(task)]:
            waits[id(follower)] -= 1
            if not waits[id(follower)]:
                slowest = max(follower.after, key=lambda other: other.end)
                follower.held_by = slowest
                heapq.heappush(ready, (slowest.end, number[id(follower)], follower))
    if done < len(tasks):
        raise ValueError(f"{len(tasks) - done} tasks wait for each other")
    return max((task.end for task in tasks), default=0.0)


def critical(tasks: Sequence[Task], since: float = 0.0) -> dict[str, float]:
    """Seconds after `since` by part, along the chain of tasks that held up the last one. They add up to its end."""
    parts: dict[str, float] = defaultdict(float)
    task: Task | None = max(tasks, key=lambda task: task.end)
    while task is not None and task.end > since:
        parts[task.part] += task.end - max(task.begin, since)
        task = task.held_by
    return dict(parts)


def busy(tasks: Sequence[Task], since: float = 0.0) -> dict[str, float]:
    """Seconds after `since` that each resource works."""
    seconds: dict[str, float] = defaultdict(float)
    for task in tasks:
        seconds[task.on] += max(0.0, task.end - max(task.begin, since))
    return dict(seconds)
