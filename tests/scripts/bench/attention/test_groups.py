"""What README.md says of policy groups."""

from bench.attention.groups import gain
from bench.rounds import Rounds


def test_the_sentence_about_groups():
    ratios = {
        "exact": 1.0,
        "groups 1/8, unit 32": 3.51,
        "groups 1/8, unit 32, 20% hot": 10.67,
        "groups 1/16, unit 32": 4.99,
    }
    ratios |= {"groups 1/8, unit 64": 3.86, "groups 1/8, unit 64, 20% hot": 11.82}
    found = gain("smollm2", 65536, Rounds([{name: {"seconds": 1 / ratio} for name, ratio in ratios.items()}]))
    assert "65,536 tokens" in found
    assert "3.5 times as fast as an exact one with units of 32 tokens (64: 3.9);" in found
    assert found.endswith("10.7 times (11.8).")
