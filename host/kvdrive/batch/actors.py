"""Batches over machines: Ray Data spreads the prompts over actors, which share the drives. Ray runs dead ones again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvdrive.batch.files import Prompt
from kvdrive.batch.worker import Work, Worker

Row = dict[str, Any]
_FOREVER = -1


class Actor:
    """A worker in a process of Ray's."""

    def __init__(self, work: Work, longest: int) -> None:
        self._worker = Worker(work, longest)

    def __call__(self, row: Row) -> Row:
        return {"answer": self._worker.answer(row["id"], row["prompt"])}


def answers(prompts: Sequence[Prompt], work: Work, actors: int, address: str) -> Iterator[Row]:
    """Answers in the order in which they come, each at least once. `address`: of a Ray cluster; "": this machine.

    The prompts of an actor that dies are given to others, and the actor is started again.
    """
    import ray
    import ray.data

    ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    longest = max(len(prompt.text) for prompt in prompts)
    rows = [{"id": prompt.id, "prompt": prompt.text} for prompt in prompts]
    # One prompt a block, so that an answer comes as soon as it is there and a dead actor costs one prompt.
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        Actor,
        fn_constructor_args=(work, longest),
        compute=ray.data.ActorPoolStrategy(size=actors),
        max_restarts=_FOREVER,
        max_task_retries=_FOREVER,
    )
    for row in dataset.iter_rows():
        yield row["answer"]
