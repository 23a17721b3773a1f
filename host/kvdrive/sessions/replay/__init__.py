"""Traces of requests, replayed in virtual time through the index and the eviction policies that the store uses."""
