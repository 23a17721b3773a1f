# SPDX-License-Identifier: Apache-2.0
"""ffn: streams of x, activations and rows of neurons in, exact sums out."""
