"""FFN_SUBMIT: feed-forward parts over values of the drive, bit for bit as the golden model."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import golden
from golden import Activation
from kvdrive import abi
from kvdrive.nvme import values, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.ffn import Weights, ffn_fetch, ffn_result, ffn_submit
from kvdrive.nvme.wire import FfnActivation, FfnLayout

S, C = abi.NvmeStatus, wire.StatusCode
KEY = b"weights"
LAYOUTS = {1: FfnLayout.FFN_DOWN, 2: FfnLayout.FFN_UP_DOWN, 3: FfnLayout.FFN_GATE_UP_DOWN}


def halves(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def send(host, command: Command):
    return host.raw(command.entry, command.data)


def store(host, content: np.ndarray, offset: int = 0, key: bytes = KEY) -> None:
    value = np.concatenate([np.full(offset, 7, np.uint8), np.ascontiguousarray(content).reshape(-1).view(np.uint8)])
    assert send(host, values.store(key, value)).status == S.SUCCESS


def compute(host, command: Command, tokens: int, hidden: int):
    """(status, y patterns) of a command that is accepted."""
    submitted = send(host, command)
    assert submitted.status == S.SUCCESS
    fetched = send(host, ffn_fetch(submitted.result, tokens, hidden))
    if fetched.status != S.SUCCESS:
        return fetched.status, None
    return fetched.status, ffn_result(fetched.data, tokens, hidden).view(np.uint32)


@pytest.fixture(params=["fast", "hls"])
def host(make_drive, request):
    return make_drive(engine=request.param)


@pytest.mark.parametrize("matrices", [1, 2, 3])
@pytest.mark.parametrize(("hidden", "neurons", "tokens"), [(8, 1, 1), (64, 70, 3), (264, 33, 2), (512, 9, 1)])
def test_rows_of_neurons_give_the_golden_bits(host, matrices, hidden, neurons, tokens):
    rng = np.random.default_rng(hidden)
    rows = halves(rng, neurons, matrices, hidden, scale=0.3)
    x = halves(rng, tokens, hidden) if matrices > 1 else None
    given = halves(rng, tokens, neurons) if matrices < 3 else None
    store(host, rows, 34)
    weights = Weights(KEY, 34, LAYOUTS[matrices], hidden, neurons)
    for activation in (Activation.GIVEN,) if matrices < 3 else (Activation.RELU, Activation.SILU):
        expected = golden.ffn(x, rows, activation, given)
        command = ffn_submit(weights, x, FfnActivation(activation), given)
        status, y = compute(host, command, tokens, hidden)
        assert (status, expected.status) == (S.SUCCESS, 0)
        np.testing.assert_array_equal(y, expected.y)


def test_chosen_neurons_are_read_and_no_others(host):
    rng = np.random.default_rng(1)
    rows, x = halves(rng, 300, 2, 1024), halves(rng, 1, 1024, scale=0.05)
    store(host, rows)  # a neuron is a page
    chosen = np.array([0, 3, 4, 17, 299])
    given = halves(rng, 1, 5)
    before = host.drive.stats()["pages_read"]
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_UP_DOWN, 1024, 300), x, activations=given, chosen=chosen)
    _, y = compute(host, command, 1, 1024)
    np.testing.assert_array_equal(y, golden.ffn(x, rows[chosen], Activation.GIVEN, given).y)
    assert host.drive.stats()["pages_read"] - before == 5


def test_neurons_that_share_a_page_read_it_once(host):
    rng = np.random.default_rng(2)
    rows, given = halves(rng, 64, 1, 128), halves(rng, 1, 4)
    store(host, rows)  # 16 neurons a page
    before = host.drive.stats()["pages_read"]
    chosen = np.array([1, 2, 15, 63])
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_DOWN, 128, 64), None, activations=given, chosen=chosen)
    _, y = compute(host, command, 1, 128)
    np.testing.assert_array_equal(y, golden.ffn(None, rows[chosen], Activation.GIVEN, given).y)
    assert host.drive.stats()["pages_read"] - before == 2


@pytest.mark.parametrize(("hidden", "neurons"), [(64, 40), (72, 33)])
def test_an_expert_gives_the_golden_bits(host, hidden, neurons):
    rng = np.random.default_rng(3)
    rows, x = halves(rng, neurons, 3, hidden, scale=0.3), halves(rng, 5, hidden)
    front = np.concatenate([rows[:, 0], rows[:, 1]]).reshape(-1)
    padded = np.pad(front, (0, -front.size % 32))
    store(host, np.concatenate([padded, rows[:, 2].T.reshape(-1)]), 4096)
    command = ffn_submit(Weights(KEY, 4096, FfnLayout.FFN_EXPERT, hidden, neurons), x, FfnActivation.FFN_SILU)
    _, y = compute(host, command, 5, hidden)
    np.testing.assert_array_equal(y, golden.ffn(x, rows, Activation.SILU).y)


def test_more_rows_than_a_block_holds_give_one_exact_sum(make_drive):
    host = make_drive(engine="fast")
    rng = np.random.default_rng(4)
    rows, given = halves(rng, 2100, 1, 4096), halves(rng, 1, 2100)  # 17 MB, blocks of 8 MiB
    store(host, rows)
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_DOWN, 4096, 2100), None, activations=given)
    _, y = compute(host, command, 1, 4096)
    np.testing.assert_array_equal(y, golden.ffn(None, rows, Activation.GIVEN, given).y)


def memory_that_stays(act) -> int:
    """Bytes of its own by which this process grows in `act`; the drive keeps its buffers from call to call."""
    before = private_bytes()
    act()
    return private_bytes() - before


def private_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def test_an_expert_takes_its_down_projection_and_some_blocks_of_memory(make_drive):
    """Bits are those of the same neurons in rows, for which the drive holds one block at a time."""
    host = make_drive(engine="fast", capacity_bytes=256 << 20)
    rng = np.random.default_rng(9)
    hidden, neurons, block = 2056, 5000, 8 << 20  # 59 MiB; no row is whole pages
    rows, x = halves(rng, neurons, 3, hidden, scale=0.02), halves(rng, 1, hidden)
    store(host, rows, key=b"rows")
    front = np.concatenate([rows[:, 0], rows[:, 1]]).reshape(-1)
    padded = np.pad(front, (0, -front.size % 32))
    store(host, np.concatenate([padded, rows[:, 2].T.reshape(-1)]), key=b"expert")
    size, found = rows.nbytes, {}
    del rows, front, padded

    def call(key: bytes, layout: FfnLayout) -> None:
        command = ffn_submit(Weights(key, 0, layout, hidden, neurons), x, FfnActivation.FFN_SILU)
        found[key] = compute(host, command, 1, hidden)[1]

    assert memory_that_stays(lambda: call(b"rows", FfnLayout.FFN_GATE_UP_DOWN)) < 4 * block
    assert memory_that_stays(lambda: call(b"expert", FfnLayout.FFN_EXPERT)) < size // 3 + 2 * block
    np.testing.assert_array_equal(found[b"expert"], found[b"rows"])


def test_values_that_are_not_finite_fail_the_command(host):
    rng = np.random.default_rng(5)
    rows, x = halves(rng, 4, 3, 64), halves(rng, 2, 64)
    weights = Weights(KEY, 0, FfnLayout.FFN_GATE_UP_DOWN, 64, 4)
    store(host, rows)
    bad = x.copy()
    bad[1, 5] = np.inf
    for wrong in (bad, np.full_like(x, 60000)):  # the second one overflows h
        status, _ = compute(host, ffn_submit(weights, wrong, FfnActivation.FFN_RELU), 2, 64)
        assert status == S.VALUE_NOT_FINITE
    rows[2, 1, 9] = np.nan
    store(host, rows)
    assert compute(host, ffn_submit(weights, x, FfnActivation.FFN_SILU), 2, 64)[0] == S.VALUE_NOT_FINITE
    chosen = np.array([0, 1, 3])
    store(host, rows[:, 1:])
    given = halves(rng, 2, 3)
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_UP_DOWN, 64, 4), x, activations=given, chosen=chosen)
    assert compute(host, command, 2, 64)[0] == S.SUCCESS  # rows that are not chosen may hold anything


def with_fields(command: Command, **fields: int) -> bytes:
    entry = np.frombuffer(command.entry, wire.FfnSubmit).copy()
    for name, value in fields.items():
        entry[name] = value
    return entry.tobytes()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"hidden": 0}, S.INVALID_FIELD),
        ({"hidden": 12}, S.INVALID_FIELD),
        ({"hidden": wire.MAX_FFN_HIDDEN + 8}, S.INVALID_FIELD),
        ({"neurons": 0}, S.INVALID_FIELD),
        ({"tokens": 0}, S.INVALID_FIELD),
        ({"tokens": wire.MAX_FFN_TOKENS + 1}, S.INVALID_FIELD),
        ({"layout": 0}, S.INVALID_FIELD),
        ({"layout": 5}, S.INVALID_FIELD),
        ({"layout": FfnLayout.FFN_EXPERT | wire.FFN_LISTED}, S.INVALID_FIELD),
        ({"activation": 3}, S.INVALID_FIELD),
        ({"activation": FfnActivation.FFN_GIVEN}, S.INVALID_FIELD),
        ({"layout": FfnLayout.FFN_UP_DOWN}, S.INVALID_FIELD),
        ({"key_bytes": 17}, S.INVALID_FIELD),
        ({"key_bytes": 0}, C.SC_INVALID_KEY_SIZE),
        ({"key_bytes": 3}, C.SC_KEY_DOES_NOT_EXIST),
        ({"tokens": 2}, S.DATA_LENGTH),
        ({"crc32c": 1}, S.CRC_MISMATCH),
        ({"offset": 2}, C.SC_INVALID_VALUE_SIZE),
        ({"offset": 0xFFFFFFFF}, C.SC_INVALID_VALUE_SIZE),
        ({"neurons": 9}, C.SC_INVALID_VALUE_SIZE),
    ],
)
def test_what_is_wrong_is_refused(host, fields, status):
    store(host, np.ones((8, 3, 64), np.float16))
    x = np.ones((1, 64), np.float16)
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_GATE_UP_DOWN, 64, 8), x, FfnActivation.FFN_RELU)
    assert host.raw(with_fields(command, **fields), command.data).status == status
    assert compute(host, command, 1, 64)[0] == S.SUCCESS


@pytest.mark.parametrize("chosen", [[3, 3], [4, 2]])
def test_a_list_that_does_not_ascend_is_refused(host, chosen):
    store(host, np.ones((8, 1, 64), np.float16))
    given = np.ones((1, 2), np.float16)
    weights = Weights(KEY, 0, FfnLayout.FFN_DOWN, 64, 8)
    command = ffn_submit(weights, None, activations=given, chosen=np.array(chosen))
    assert send(host, command).status == S.INVALID_FIELD
    beyond = ffn_submit(weights, None, activations=given, chosen=np.array([2, 8]))
    assert send(host, beyond).status == C.SC_INVALID_VALUE_SIZE


def test_a_damaged_page_fails_the_command_and_computes_nothing(host):
    store(host, np.ones((512, 1, 2048), np.float16))  # more than waits in drive memory
    host.drive.inject("read_uncorrectable", after=3)
    given = np.ones((1, 16), np.float16)
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_DOWN, 2048, 16), None, activations=given)
    assert compute(host, command, 1, 2048)[0] == S.UNRECOVERED_READ
    assert compute(host, command, 1, 2048)[0] == S.SUCCESS


def test_the_engine_and_the_flash_take_device_time(make_drive):
    host = make_drive(engine="fast", preset="instcsd")
    store(host, np.ones((512, 3, 256), np.float16))
    assert host.flush().status == S.SUCCESS
    x = np.ones((2, 256), np.float16) * 0.01

    def spent(neurons: int) -> tuple[int, int]:
        before = host.drive.flash_stats()
        command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_GATE_UP_DOWN, 256, neurons), x, FfnActivation.FFN_RELU)
        assert compute(host, command, 2, 256)[0] == S.SUCCESS
        after = host.drive.flash_stats()
        return after["engine_cycles"] - before["engine_cycles"], after["device_ns"] - before["device_ns"]

    stated = tomllib.loads((Path(__file__).parents[2] / "hls/ffn/kernel.toml").read_text())["cycles"]
    few_cycles, few_ns = spent(8)
    many_cycles, many_ns = spent(512)
    for neurons, cycles in ((8, few_cycles), (512, many_cycles)):  # a call for each of the two tokens
        variables = {"hidden": 256, "matrices": 3, "neurons": neurons}
        assert cycles == 2 * (eval(stated["formula"], {}, variables) + stated["fill"])
    assert many_ns > few_ns + 50_000  # 192 pages instead of 3


def test_a_result_is_that_of_the_weights_when_it_was_asked_for(host):
    rows = np.ones((4, 1, 64), np.float16)
    store(host, rows)
    command = ffn_submit(Weights(KEY, 0, FfnLayout.FFN_DOWN, 64, 4), None, activations=np.ones((1, 4), np.float16))
    ticket = send(host, command).result
    assert send(host, values.delete(KEY)).status == S.SUCCESS
    y = ffn_result(send(host, ffn_fetch(ticket, 1, 64)).data, 1, 64)
    np.testing.assert_array_equal(y, np.full((1, 64), 4, np.float32))
    assert send(host, command).status == C.SC_KEY_DOES_NOT_EXIST
