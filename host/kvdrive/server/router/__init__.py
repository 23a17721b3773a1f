"""A server of several models: each runs in a process of its own, which is started when a request names it."""
