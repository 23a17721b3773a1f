# SPDX-License-Identifier: Apache-2.0
"""group_choice: a job in memory in, a bitmap of units and a record in the same memory out."""
