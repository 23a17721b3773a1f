# SPDX-License-Identifier: Apache-2.0
"""The project's kernels as RTL: builds, manifests, the verilated library and measurements. `openhls` does the work."""
