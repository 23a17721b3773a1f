# SPDX-License-Identifier: Apache-2.0
"""From IR to IR: the same program in a form that makes better hardware."""
