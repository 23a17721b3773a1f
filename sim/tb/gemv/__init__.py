# SPDX-License-Identifier: Apache-2.0
"""gemv: streams of operands and KV beats in, dot products or sums out."""
