# SPDX-License-Identifier: Apache-2.0
"""What the test benches of all kernels share."""
