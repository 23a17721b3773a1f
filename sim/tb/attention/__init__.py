# SPDX-License-Identifier: Apache-2.0
"""attention: a job in memory in, results in the same memory out."""
