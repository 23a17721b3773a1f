# SPDX-License-Identifier: Apache-2.0
"""Reads the LLVM IR that opt prints."""
