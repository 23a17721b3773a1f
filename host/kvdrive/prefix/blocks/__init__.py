"""Blocks of bytes stored by key in a file or on a drive, for engines that have K and V in blocks of their own."""
