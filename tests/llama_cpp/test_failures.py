"""Full and killed drives: an error of one call, and a drive that the next process reads."""

import numpy as np
from llama_host import SAME, decode, divergences, one_by_one, tokens

from kvdrive.targets.cpu import CpuDrive


def test_a_full_drive_fails_the_call_and_not_the_program(host, drive):
    numbers = tokens(300)
    long = [decode(tokens(1000, seed), 1000 * seed) for seed in range(16)]
    after = ["clear", decode(numbers[:200]), *one_by_one(numbers[200:203], 200)]
    done = host.run([*long, *after], drive=drive, ctx=16384, KVDRIVE_CAPACITY="16M")
    assert done.code == 0
    failed = done.lines.index("decode failed with -3")
    assert done.lines[:failed] == ["ok"] * failed
    assert "the drive failed to store K and V: the drive is full" in done.errors
    assert done.lines[16:] == ["ok"] * 5
    plain = host.run(after[1:], fa="off")
    assert divergences(plain.logits[1:], done.logits[-3:]).max() < SAME


def test_a_sequence_goes_on_behind_a_failed_batch(host, drive):
    numbers = tokens(16000)
    commands = [decode(numbers[start : start + 1000], start) for start in range(0, 16000, 1000)]
    full = host.run(commands, drive=drive, ctx=16384, KVDRIVE_CAPACITY="16M")
    end = 1000 * full.lines.index("decode failed with -3")
    drive.unlink()
    shrunk = [*commands[: end // 1000 + 1], f"rm 0 {end - 900} -1", *one_by_one(numbers[end - 900 : end - 896], end - 900)]
    ours = host.run(shrunk, drive=drive, ctx=16384, KVDRIVE_CAPACITY="16M")
    plain = host.run([commands[0], *shrunk[1 : end // 1000], *shrunk[end // 1000 + 1 :]], fa="off", ctx=16384)
    assert ours.lines[-5:] == ["ok"] * 5, ours.errors
    assert divergences(plain.logits[-4:], ours.logits[-4:]).max() < SAME


def test_a_killed_process_leaves_a_drive_that_the_next_one_cleans(host, drive):
    killed = host.run([decode(tokens(900)), *one_by_one(tokens(3, 2), 900), "die"], drive=drive)
    assert killed.code == -9
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted.check() == []
    done = host.run([decode(tokens(20)), *one_by_one(tokens(2), 20)], drive=drive)
    assert done.lines == ["ok"] * 3, done.errors
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted.sessions() == set()
        assert mounted.check() == []


def test_sessions_of_other_programs_stay(host, drive):
    from kvdrive import abi
    from kvdrive.nvme import commands

    rows = np.ones((1, 40, 64), np.float16)
    with CpuDrive(drive, threads=1) as mounted:
        session = mounted.new_session()
        mounted.submit(commands.kv_append(session, 0, 0, 0, abi.KvKind.KEYS, rows, 0))
    done = host.run([decode(tokens(20))], drive=drive)
    assert done.lines == ["ok"], done.errors
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted.sessions() == {session}
