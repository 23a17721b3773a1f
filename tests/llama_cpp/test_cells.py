"""Whatever llama.cpp does with the cells of its cache, its results with K and V in a drive are those without."""

import random

import numpy as np
import pytest
from llama_host import SAME, decode, divergences, one_by_one, tokens


def test_a_prompt_is_computed_beside_the_drive_and_a_step_inside(as_stock):
    _, ours = as_stock([decode(tokens(300)), *one_by_one(tokens(1), 300)])
    assert ours.counters["attention_in_host"] == 4  # layers
    assert ours.counters["attention_in_drive"] == 4


@pytest.mark.parametrize("depth", [7, 600, 3000])
def test_steps_at_a_depth(as_stock, depth):
    numbers = tokens(depth + 8)
    stock, ours = as_stock([decode(numbers[:depth]), *one_by_one(numbers[depth:], depth)], ctx=depth + 8)
    assert np.array_equal(stock.logits.argmax(axis=1), ours.logits.argmax(axis=1))


@pytest.mark.parametrize("batch", [9, 33, 128])
def test_a_prompt_in_several_batches(host, drive, batch):
    """Blocks of queries and tiles of rows that are full, or not."""
    numbers = tokens(576 + 90)
    commands = [decode(numbers[:576]), decode(numbers[576:], 576)]
    stock = [host.run(commands, ubatch=batch, fa=kernel).logits for kernel in ("off", "on")]
    ours = host.run(commands, ubatch=batch, drive=drive)
    assert ours.lines == ["ok", "ok"], ours.errors
    assert np.minimum(*(divergences(logits, ours.logits) for logits in stock)).max() < SAME
    assert ours.counters["attention_in_drive"] == 0


@pytest.mark.parametrize("unified", [0, 1])
def test_sequences_take_turns(as_stock, unified):
    first, second = tokens(200, 1), tokens(150, 2)
    commands = [decode(first[:100], 0, 0), decode(second[:140], 0, 1), decode(first[100:190], 100, 0)]
    for step in range(8):
        commands.append(f"batch 0:{190 + step}:{first[190 + step]} 1:{140 + step}:{second[140 + step]}")
    as_stock(commands, seqs=2, unified=unified)


def test_rows_of_other_sequences_are_not_read(host, drive):
    short, long = tokens(64, 1), tokens(900, 2)
    prompts = [decode(short[:60], 0, 0), decode(long, 0, 1)]
    options = {"seqs": 2, "unified": 1, "drive": drive}
    before = host.run(prompts, **options).counters["drive"]
    after = host.run(prompts + one_by_one(short[60:], 60, 0), **options).counters["drive"]
    pages = after["pages_read"] - before["pages_read"]  # of 32 rows
    assert 0 < pages <= 4 * (4 * 2 * 2) * 2  # steps; K and V of 4 layers and 2 heads; 60 tokens
    assert after["read_rows"] == before["read_rows"]


def test_removed_tokens_are_written_again(as_stock):
    numbers = tokens(120)
    commands = [decode(numbers[:100]), "rm 0 60 -1", decode(numbers[:30], 60), *one_by_one(numbers[30:40], 90)]
    _, ours = as_stock(commands)
    assert ours.counters["drive"]["trims"] == 0  # llama.cpp may still use the cells behind
    commands = [decode(numbers[:100]), "rm 0 90 -1", decode(numbers[:30], 90), *one_by_one(numbers[30:32], 120)]
    _, ours = as_stock(commands)
    assert ours.counters["drive"]["trims"] == 1  # all of them are overwritten


def test_cells_in_the_middle_are_used_again(as_stock):
    first, second = tokens(300, 1), tokens(300, 2)
    commands = [decode(first[:50], 0, 0), decode(second[:100], 0, 1), decode(first[50:90], 50, 0)]
    commands += ["rm 1 -1 -1", decode(second[100:260], 0, 1)]  # the cells of sequence 1, and some behind sequence 0
    commands += one_by_one(first[90:96], 90, 0) + one_by_one(second[260:266], 160, 1)
    as_stock(commands, seqs=2, unified=1, ctx=512)


@pytest.mark.parametrize("unified", [0, 1])
def test_a_copied_sequence_goes_its_own_way(as_stock, unified):
    numbers = tokens(200)
    commands = [decode(numbers[:100], 0, 0), "cp 0 1"]
    commands += one_by_one(numbers[100:104], 100, 0) + one_by_one(numbers[150:154], 100, 1)
    _, ours = as_stock(commands, seqs=2, unified=unified)
    assert ours.counters["drive"]["forks"] == 1 - unified  # within a stream only llama.cpp's own table changes


def test_a_copy_replaces_what_was_there(as_stock):
    numbers = tokens(300)
    commands = [decode(numbers[:100], 0, 0), decode(numbers[100:250], 0, 1), "rm 1 -1 -1", "cp 0 1"]
    as_stock(commands + one_by_one(numbers[250:254], 100, 1) + one_by_one(numbers[254:258], 100, 0), seqs=2)


@pytest.mark.parametrize("sequences", [1, 2])
def test_a_context_shift_rotates_keys(as_stock, sequences):
    numbers = tokens(200)
    commands = [decode(numbers[:150], 0, sequence) for sequence in range(sequences)]
    commands += ["rm 0 20 80", "add 0 80 -1 -60", *one_by_one(numbers[150:156], 90)]
    commands += one_by_one(numbers[150:152], 150, sequences - 1) if sequences > 1 else []
    as_stock(commands, seqs=sequences)


def test_a_cleared_cache_takes_another_prompt(as_stock):
    numbers = tokens(200)
    as_stock([decode(numbers[:100]), "clear", decode(numbers[100:170]), *one_by_one(numbers[170:174], 70)])


def test_a_saved_sequence_is_restored_by_either(host, drive, tmp_path):
    numbers = tokens(130)
    saved = [decode(numbers[:100]), f"save 0 {tmp_path / 'state'}"]
    restored = [decode(numbers[50:90]), f"load 0 {tmp_path / 'state'}", *one_by_one(numbers[100:104], 100)]
    expected = host.run([decode(numbers[:100]), *one_by_one(numbers[100:104], 100)], fa="off")
    for writer in (None, drive):
        host.run(saved, drive=writer)
        for reader in (None, drive):
            found = host.run(restored, drive=reader)
            assert found.lines == ["ok"] * len(restored), found.errors
            assert divergences(expected.logits[1:], found.logits[1:]).max() < (SAME if reader else 1e-3)


def test_dead_tokens_do_not_grow_without_end(as_stock):
    numbers = tokens(400)
    commands = [decode(numbers[:300], 0, 0), decode(numbers[:100], 0, 1)]
    for turn in range(18):
        commands += ["rm 0 0 -1", decode(numbers[turn : turn + 300], 0, 0), decode(numbers[:1], 100 + turn, 1)]
    _, ours = as_stock(commands + one_by_one(numbers[:4], 300, 0), seqs=2, unified=1, ctx=512)
    assert ours.counters["drive"]["sessions"] == 2  # the second one took over the live tokens


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unified", [0, 1])
def test_random_operations(as_stock, seed, unified):
    """Three sequences grow, shrink, are copied and shifted."""
    chosen = random.Random(seed)
    ends, commands, shared = [0, 0, 0], [], False

    def grow(sequence: int, size: int) -> None:
        commands.append(decode(tokens(size, chosen.randrange(1000)), ends[sequence], sequence))
        ends[sequence] += size

    for _ in range(40):
        sequence = chosen.randrange(3)
        action = chosen.choices(["grow", "step", "shrink", "copy", "shift"], [3, 4, 2, 1, 1])[0]
        end = ends[sequence]
        if action == "step" or end == 0:
            grow(sequence, chosen.randint(1, 9))
        elif action == "grow":
            grow(sequence, chosen.randint(10, 60))
        elif action == "shrink":
            ends[sequence] = chosen.randrange(end)
            commands.append(f"rm {sequence} {ends[sequence]} -1")
        elif action == "copy":
            target = (sequence + chosen.randint(1, 2)) % 3
            commands += [f"rm {target} -1 -1", f"cp {sequence} {target}"]
            ends[target] = end
            shared = unified == 1  # a shift of one sequence moves the other one's tokens, too
        elif end > 20 and not shared:
            first = chosen.randrange(1, end // 2)
            last = chosen.randrange(first + 1, end)
            commands += [f"rm {sequence} {first} {last}", f"add {sequence} {last} -1 {first - last}"]
            ends[sequence] -= last - first
    as_stock(commands, seqs=3, unified=unified, ctx=3 * 1024)
