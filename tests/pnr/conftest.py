"""Netlists after place and route."""

from simulator import needs_verilator  # noqa: F401
