# SPDX-License-Identifier: Apache-2.0
"""What `narrow` is made of: facts about values, demands for their bits, and the writer that follows both."""
