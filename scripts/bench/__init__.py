"""Benchmarks: suites of contenders that take turns, and their results by machine. `python -m bench` lists them."""
