# SPDX-License-Identifier: Apache-2.0
"""Facts about a program that passes and the scheduler both need. Nothing here changes a program."""
