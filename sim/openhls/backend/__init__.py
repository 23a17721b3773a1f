# SPDX-License-Identifier: Apache-2.0
"""From openhls.ir to SystemVerilog: schedules, netlists, text, and the comparison with g++."""
