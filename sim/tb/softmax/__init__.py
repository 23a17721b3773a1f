# SPDX-License-Identifier: Apache-2.0
"""softmax: streams of scores and masks in, probabilities out."""
