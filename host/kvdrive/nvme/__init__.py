"""Commands of the drive as 64-byte submission queue entries, and their completions."""
