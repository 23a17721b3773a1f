# SPDX-License-Identifier: Apache-2.0
"""From a scheduled program to SystemVerilog: netlists, their text, and the report."""
