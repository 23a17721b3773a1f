# SPDX-License-Identifier: Apache-2.0
"""attention_codes: a job over codes in memory in, results in the same memory out."""
