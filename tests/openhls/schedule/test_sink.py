# SPDX-License-Identifier: Apache-2.0
"""What waits for a product in a pipeline waits in as few bits as it can."""

from openhls.analysis.storage import storage_of
from openhls.ir import Array, Carried, Const, Dependence, Value
from openhls.schedule.dependence import Body
from openhls.schedule.schedule import Schedule, schedule_loop
from openhls.schedule.target import target_of

CLOCK = target_of(300.0)


def scheduled(new_block, shape: str) -> tuple[Schedule, dict[str, int], int]:
    """A word is multiplied; beside it something else waits for the product. Steps by the name of what waits."""
    block = new_block("b")
    counter = Value("i", 8)
    word = block("read", w=16, to="in")
    product = block("mul", word, word)
    made = {
        "extension": lambda: block("sext", block("extract", word, w=8), w=16),
        "load": lambda: block("load", block("extract", word, w=4), w=16, to="a"),
        "difference": lambda: block("xor", word, block("zext", counter, w=16)),
    }[shape]()
    total = block("add", product, made)
    if shape == "load":
        block("store", block("extract", word, w=4), total, to="a")
    block("write", total, to="out")
    following = block("add", counter, Const(8, 1))
    again = block("ne", following, Const(8, 100))
    operations = block.block().operations
    promise = Dependence("a", True, True, "RAW", 2)
    body = Body(
        operations,
        {"a": storage_of(Array("a", 16, 16))} if shape == "load" else {},
        (Carried(counter, Const(8, 0), following),),
        (promise,),
        looped=True,
    )
    schedule = schedule_loop(body, again, 1, True, CLOCK)
    names = [op.result.name if op.result is not None else op.target for op in operations]
    steps = dict(zip(names, schedule.steps, strict=True))
    return schedule, {"made": steps[made.name], "total": steps[total.name]}, schedule.ready[product.name].step


def test_an_extension_is_made_where_it_is_used(new_block) -> None:
    schedule, steps, product = scheduled(new_block, "extension")
    assert schedule.interval == 1
    assert product > 0
    assert steps == {"made": product, "total": product}


def test_a_word_of_a_memory_is_read_a_step_before_its_use(new_block) -> None:
    schedule, steps, product = scheduled(new_block, "load")
    assert schedule.interval == 1
    assert steps["total"] - steps["made"] <= 2
    assert steps["made"] > 0
    assert steps["total"] == product


def test_what_would_keep_wider_operands_waiting_stays(new_block) -> None:
    _, steps, product = scheduled(new_block, "difference")
    assert steps == {"made": 0, "total": product}
