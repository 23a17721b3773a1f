# SPDX-License-Identifier: Apache-2.0
"""When each operation of a program happens, for a device at a clock."""
