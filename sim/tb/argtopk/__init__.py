# SPDX-License-Identifier: Apache-2.0
"""argtopk: keys in memory in, indices and a bitmap in memory out."""
