"""The tables of docs/vllm.md say when an answer differs."""

import bench_vllm


def measured(tokens, seconds=2.5):
    first = {"seconds": seconds, "cached": [0], "tokens": [[1, 2]]}
    return {"rounds": [first, {"seconds": 0.5, "cached": [2944], "tokens": tokens}]}


def test_tables():
    turns = {"seconds": 3.0, "first": [0.3, 0.1, 0.2], "cached": [0, 50], "prompt": [100, 100], "tokens": [[7]]}
    found = {
        "rounds": {"none": measured([[1, 2]]), "ssd": measured([[1, 3]])},
        "restart": {"ssd": {"rounds": [{"seconds": 0.25, "tokens": [[1, 2]]}]}},
        "turns": {"none": turns, "ssd": turns | {"tokens": [[8]]}},
    }
    text = bench_vllm.tables({"found": found, "machine": {"processor": "x", "cpus": 2}, "vllm": "0", "model": "Small."})
    assert "| vLLM alone | 2.50 s | 0.50 s | nothing is left | 2,944 of 3,000 | yes |" in text
    assert "| kvdrive, file on the SSD | 2.50 s | 0.50 s | 0.25 s | 2,944 of 3,000 | NO |" in text
    assert "| vLLM alone | 3.00 | 200 ms | 25% | yes |" in text
    assert "| kvdrive, file on the SSD | 3.00 | 200 ms | 25% | NO |" in text
