"""Full and killed drives: an error of one call, and a drive that the next process reads."""

import numpy as np
from llama_host import SAME, decode, divergences, one_by_one, tokens

from kvdrive.targets.cpu import CpuDrive

SMALL = {"ctx": 4096, "KVDRIVE_CAPACITY": "4M"}  # K and V of 2,048 tokens


def test_a_full_drive_fails_the_call_and_not_the_program(host, drive):
    numbers = tokens(300)
    long = [decode(tokens(500, seed), 500 * seed) for seed in range(7)]
    after = ["clear", decode(numbers[:200]), *one_by_one(numbers[200:203], 200)]
    done = host.run([*long, *after], drive=drive, **SMALL)
    assert done.code == 0
    failed = done.lines.index("decode failed with -3")
    assert done.lines[:failed] == ["ok"] * failed
    assert "the drive failed to store K and V: the drive is full" in done.errors
    assert done.lines[7:] == ["ok"] * 5
    plain = host.run(after[1:], fa="off")
    assert divergences(plain.logits[1:], done.logits[-3:]).max() < SAME


def test_a_sequence_goes_on_behind_a_failed_batch(host, drive):
    numbers = tokens(3500)
    long = [decode(numbers[start : start + 500], start) for start in range(0, 3500, 500)]
    end = host.run(long, drive=drive, **SMALL).lines.index("decode failed with -3")
    drive.unlink()
    after = one_by_one(numbers[500 * end : 500 * end + 4], 500 * end)
    done = host.run([*long[: end + 1], *after], drive=drive, **SMALL)
    assert done.lines == ["ok"] * end + ["decode failed with -3"] + ["ok"] * 4
    plain = host.run([*long[:end], *after], fa="off", ctx=4096)
    assert divergences(plain.logits[-4:], done.logits[-4:]).max() < SAME


def test_a_killed_process_leaves_a_drive_that_the_next_one_cleans(host, drive):
    killed = host.run([decode(tokens(900)), *one_by_one(tokens(3, 2), 900), "die"], drive=drive)
    assert killed.code == -9
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted._open_drive().check() == []
    done = host.run([decode(tokens(20)), *one_by_one(tokens(2), 20)], drive=drive)
    assert done.lines == ["ok"] * 3, done.errors
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted.sessions() == set()
        assert mounted._open_drive().check() == []


def test_sessions_of_other_programs_stay(host, drive):
    from kvdrive import abi
    from kvdrive.nvme import commands

    rows = np.ones((1, 40, 64), np.float16)
    with CpuDrive(drive, threads=1) as mounted:
        session = mounted.new_session()
        mounted.submit(commands.kv_append(session, 0, 0, abi.KvKind.KEYS, 0, 0, rows))
    done = host.run([decode(tokens(20))], drive=drive)
    assert done.lines == ["ok"], done.errors
    with CpuDrive(drive, threads=1) as mounted:
        assert mounted.sessions() == {session}
