# SPDX-License-Identifier: Apache-2.0
"""Differential fuzzing: random C++ inside the subset, as g++ compiles it and as RTL under random stalls."""
