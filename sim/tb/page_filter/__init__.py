# SPDX-License-Identifier: Apache-2.0
"""page_filter: streams of pages and bitmaps in, wanted rows and reports out."""
