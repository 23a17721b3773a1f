# SPDX-License-Identifier: Apache-2.0
"""From C++ to the program of openhls.ir."""
