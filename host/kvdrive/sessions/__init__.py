"""A replay of requests over the index and the eviction policies of the prefix store."""
