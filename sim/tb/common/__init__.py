# SPDX-License-Identifier: Apache-2.0
"""Parts that the test benches of all kernels share."""
