"""What the benchmark makes of the figures of its engines."""

from __future__ import annotations

import pytest

from bench.sessions import vllm


def answers(tokens: int) -> list[list[int]]:
    return [[tokens] * 4] * 6


def rounds(seconds: float, tokens: int = 7, count: int = 2) -> dict:
    one = {"seconds": seconds, "read": 72_000_000, "cached": [2944] * 6, "first": [0.1] * 6, "tokens": answers(tokens)}
    return {"rounds": [one] * count}


def burst(tokens: int = 7) -> dict:
    samples = [
        {"seconds": 0.5 * step, "remaining": 6 - step, "generated": 4 * step, "read": 1 << 20, "written": 0}
        for step in range(1, 7)
    ]
    found = {"seconds": 3.0, "first": [0.2] * 6, "cached": [500] * 6, "prompt": [1000] * 6}
    return found | {"tokens": answers(tokens), "samples": samples}


def test_a_row_has_both_rounds_the_restart_the_bytes_and_the_comparison_of_tokens():
    found = {"none": rounds(3), "naive": rounds(0.9), "ssd": rounds(0.5)}
    found["naive"]["rounds"] = [found["naive"]["rounds"][0], found["naive"]["rounds"][1] | {"cached": [2944] * 5}]
    (table,) = vllm.tables({"rounds": found, "restart": {"ssd": rounds(0.6, count=1)}})
    text = table.text()
    assert "| the smallest SSD tier | 0.90 s | 0.90 s | 72 MB | 14,720 of 18,000 | nothing is left | yes |" in text
    assert "| kvdrive, file on the SSD | 0.50 s | 0.50 s | 72 MB | 17,664 of 18,000 | 0.60 s | yes |" in text


def test_a_row_of_conversations_has_the_median_time_to_the_first_token_and_the_hit_rate():
    turns = burst() | {"first": [0.3, 0.1, 0.2], "cached": [0, 50], "prompt": [100, 100]}
    text = vllm.of_requests("conversations", {"none": turns, "ssd": turns | {"tokens": answers(8)}}, "").text()
    assert "| vLLM alone | 3.00 | 200 ms | 25% | yes |" in text
    assert "| kvdrive, file on the SSD | 3.00 | 200 ms | 25% | NO |" in text


@pytest.mark.parametrize("part", ["rounds", "restart", "burst"])
def test_other_tokens_are_noticed(part):
    found = {"rounds": {"none": rounds(3), "ssd": rounds(0.5)}, "restart": {"ssd": rounds(0.6, count=1)}}
    found |= {"burst": {"none": burst(), "ssd": burst()}}
    assert vllm.different(found) is False
    found[part]["ssd"] = burst(8) if part == "burst" else rounds(0.5, 8)
    assert vllm.different(found) is True


def test_tokens_a_second_add_up():
    middles, rates = vllm.tokens_a_second(burst())
    assert len(middles) == len(rates) == 20
    assert sum(rates) * 3.0 / 20 == pytest.approx(24)


@pytest.mark.slow
def test_the_picture_shows_three_configurations(tmp_path):
    vllm.picture({name: burst() for name in ("none", "memory", "ssd")}, tmp_path / "burst.png")
    assert (tmp_path / "burst.png").read_bytes().startswith(b"\x89PNG")
