"""The regressions of kernels."""

from simulator import needs_verilator  # noqa: F401
