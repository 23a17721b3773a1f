"""Blocks of bytes kept by key in a file or on a drive, for engines that keep K and V in blocks of their own."""
