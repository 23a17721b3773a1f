# SPDX-License-Identifier: Apache-2.0
"""Device time: close to the real drives, the same for the same commands, and dependent on the right parameters."""

import numpy as np
import pytest

from kvdrive._native import presets, timing_cases


@pytest.mark.parametrize("case", timing_cases(), ids=lambda case: f"{case['preset']}: {case['case']}")
def test_published_values_within_two_percent(case):
    assert abs(case["error_percent"]) < 2
    assert case["error_percent"] == pytest.approx((case["ours"] / case["reference"] - 1) * 100)


def attend_ns(host, tokens=8192, **fields):
    """Device time of one query over `tokens` tokens of one head."""
    rng = np.random.default_rng(1)
    rows, q = rng.standard_normal((1, tokens, 128)).astype(np.float16), np.ones((1, 1, 128), np.float16)
    host.store(rows, rows)
    host.flush()
    before = host.drive.flash_stats()
    host.attend(q, tokens, **fields)
    return host.drive.flash_stats()["device_ns"] - before["device_ns"]


@pytest.mark.parametrize("preset", presets())
def test_same_commands_same_time(make_drive, preset):
    first, second = (attend_ns(make_drive(preset=preset)) for _ in range(2))
    assert first == second > 0


def test_reads_use_all_channels_and_are_bound_by_them(make_drive):
    """4 MiB from 8 channels of 1.4 GB/s take at least 374 us; sensing and the engine overlap."""
    host = make_drive(preset="instcsd")
    elapsed = attend_ns(host)
    assert 374_000 < elapsed < 700_000
    channels = host.drive.flash_stats()["channel_bytes"]
    assert max(channels) < 1.1 * min(channels)


def test_neighbouring_groups_share_a_sensing(make_drive):
    """A flash page of a 970 PRO holds 8 groups of 16 tokens."""
    host = make_drive(preset="970pro")
    rows = np.ones((1, 4096, 128), np.float16)
    host.store(rows, rows)
    host.flush()
    for tokens, pages in ((128, 1), (256, 2), (2048, 16)):
        before = host.drive.flash_stats()["pages_sensed"]
        host.attend(np.ones((1, 1, 128), np.float16), tokens)
        assert host.drive.flash_stats()["pages_sensed"] - before == 2 * pages


def test_an_fpga_behind_the_drive_waits_for_the_link(make_drive):
    """4 MiB over 3 GB/s take 1.4 ms."""
    elapsed = attend_ns(make_drive(preset="smartssd"))
    assert 1_400_000 < elapsed < 2_000_000


def test_durable_appends_take_a_program(make_drive):
    rows = np.ones((1, 1, 64), np.float16)
    elapsed = []
    for options in (0, 1):
        host = make_drive(preset="970pro")
        host.append(rows, options=options)
        elapsed.append(host.drive.flash_stats()["device_ns"])
    assert elapsed[0] == 4000 + 460 + 36  # firmware and one 128-byte piece over PCIe
    assert elapsed[1] > elapsed[0] + 185_000


def test_metadata_is_a_few_bytes_a_page(make_drive):
    host = make_drive(capacity_bytes=1 << 28)
    rows = np.ones((1, 40_000, 128), np.float16)
    host.store(rows, rows)
    stats = host.drive.flash_stats()
    assert stats["metadata_bytes"] < stats["groups_live"] * 20
